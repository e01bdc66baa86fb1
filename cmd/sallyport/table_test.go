package main

import (
	"strings"
	"testing"
)

func TestTablesFitTheTerminal(t *testing.T) {
	rows := func() [][]string {
		return [][]string{
			{"POLICY", "MATCHES", "DESCRIPTION"},
			{"policies/a@1", "payments.example.com /v1", "what the shop pays with"},
			{"policies/b@12", "any call", "\x1b[31mred\u202e"},
			{"policies/c@3", "ｗｉｄｅ　ｌｅｔｔｅｒｓ　ｈ", ""},
		}
	}
	for _, tt := range []struct {
		name  string
		width int
		want  string
	}{
		{"any width", 0, `POLICY         MATCHES                       DESCRIPTION
policies/a@1   payments.example.com /v1      what the shop pays with
policies/b@12  any call                      \x1b[31mred\u202e
policies/c@3   ｗｉｄｅ　ｌｅｔｔｅｒｓ　ｈ
`},
		{"the widest columns give way", 50, `POLICY         MATCHES           DESCRIPTION
policies/a@1   payments.exampl…  what the shop pa…
policies/b@12  any call          \x1b[31mred\u202e
policies/c@3   ｗｉｄｅ　ｌｅ…
`},
		{"narrower than its columns can be", 20, `POLICY    MATCHES  …
policie…  payment… …
policie…  any call …
policie…  ｗｉｄ…
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			writeTable(&b, tt.width, rows())
			if b.String() != tt.want {
				t.Errorf("got\n%s want\n%s", b.String(), tt.want)
			}
			for line := range strings.Lines(b.String()) {
				if n := cells(strings.TrimSuffix(line, "\n")); tt.width > 0 && n > tt.width {
					t.Errorf("%d cells: %q", n, line)
				}
			}
		})
	}
}
