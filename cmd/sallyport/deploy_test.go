package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
)

const deploy = "../../deploy"

// query is an expression, and where it stands.
type query struct{ place, text string }

// dashboardQueries are those of a dashboard, with the variables of Grafana replaced by what they may become.
func dashboardQueries(t *testing.T) (queries []query, lookups [][2]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "sallyport.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct {
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
		Panels []struct {
			Title   string `json:"title"`
			Type    string `json:"type"`
			GridPos struct {
				X int `json:"x"`
				W int `json:"w"`
			} `json:"gridPos"`
			Targets []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$origin", ".*")
	lookup := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	for _, v := range board.Templating.List {
		if m := lookup.FindStringSubmatch(v.Definition); m != nil {
			lookups = append(lookups, [2]string{m[1], m[2]})
		}
	}
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: %d queries at %+v", p.Title, len(p.Targets), p.GridPos)
		}
		for _, target := range p.Targets {
			text := variables.Replace(target.Expr)
			if strings.Contains(text, "$") {
				t.Errorf("panel %q: an unknown variable in %s", p.Title, text)
			}
			queries = append(queries, query{"panel " + p.Title, text})
			for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if !regexp.MustCompile(`\(([^)]*\b)?`+m[1]+`\b`).MatchString(text) && !strings.Contains(text, "topk(") && !strings.Contains(text, "bottomk(") {
					t.Errorf("panel %q: the legend names %s, which %s does not keep", p.Title, m[1], text)
				}
			}
		}
	}
	return queries, lookups
}

// alertQueries are those of the alert rules.
func alertQueries(t *testing.T) []query {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	strict(t, filepath.Join(deploy, "prometheus", "alerts.yaml"), &file)
	var queries []query
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Alert == "" {
				t.Errorf("%s: severity %q, summary %q", r.Alert, r.Labels["severity"], r.Annotations["summary"])
			}
			queries = append(queries, query{"alert " + r.Alert, r.Expr})
		}
	}
	return queries
}

func strict(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// asked is what an expression asks for, as tools/promql tells.
type asked struct {
	Error   string              `json:"error"`
	Metrics map[string][]string `json:"metrics"`
	Labels  []string            `json:"labels"`
}

// parse has Prometheus's own parser read the expressions. It stands in a module of its own (docs/adr/0003-tools-modules.md).
func parse(t *testing.T, queries []query) []asked {
	t.Helper()
	texts := make([]string, len(queries))
	for i, q := range queries {
		texts[i] = q.text
	}
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", ".")
	cmd.Dir, cmd.Stdin = "../../tools/promql", bytes.NewReader(in)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tools/promql: %v\n%s", err, problem.String())
	}
	var all []asked
	if err := json.Unmarshal(out, &all); err != nil || len(all) != len(queries) {
		t.Fatalf("tools/promql: %v, %d answers to %d", err, len(all), len(queries))
	}
	return all
}

// family finds what a name in a query means: a histogram has three.
func family(told map[string]*dto.MetricFamily, name string) *dto.MetricFamily {
	if f := told[name]; f != nil && f.GetType() != dto.MetricType_HISTOGRAM {
		return f
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			if f := told[base]; f != nil && f.GetType() == dto.MetricType_HISTOGRAM {
				return f
			}
		}
	}
	return nil
}

// Every expression of the dashboard and of the alerts is PromQL and asks for metrics and labels that a broker tells.
func TestDashboardAndAlertsAskForWhatThereIs(t *testing.T) {
	told := busy(t)
	queries, lookups := dashboardQueries(t)
	alerts := alertQueries(t)
	if len(queries) < 30 || len(alerts) < 10 || len(lookups) < 2 {
		t.Fatalf("%d queries, %d alerts, %d variables", len(queries), len(alerts), len(lookups))
	}
	// What Prometheus adds by itself.
	own := []string{"instance", "job", "le"}
	has := func(metric, label string) bool {
		f := family(told, metric)
		return slices.Contains(own, label) || f != nil && slices.Contains(labels(f), label)
	}
	used := map[string]bool{}
	queries = append(queries, alerts...)
	for i, q := range parse(t, queries) {
		if q.Error != "" {
			t.Errorf("%s: %s: %s", queries[i].place, q.Error, queries[i].text)
			continue
		}
		for metric, matched := range q.Metrics {
			if metric == "up" { // Prometheus's own
				continue
			}
			if family(told, metric) == nil {
				t.Errorf("%s: there is no %s", queries[i].place, metric)
			}
			for _, label := range matched {
				if !has(metric, label) {
					t.Errorf("%s: %s has no label %s", queries[i].place, metric, label)
				}
			}
			used[strings.TrimSuffix(metric, "_bucket")] = true
			for _, label := range q.Labels {
				if !has(metric, label) {
					t.Errorf("%s: %s has no label %s to group by", queries[i].place, metric, label)
				}
			}
		}
	}
	for _, l := range lookups {
		if !has(l[0], l[1]) {
			t.Errorf("a variable asks for %s of %s", l[1], l[0])
		}
	}
	for name := range documentedMetrics(t) { // what nobody looks at is not worth its cost
		if !used[name] {
			t.Errorf("%s stands in no panel and no alert", name)
		}
	}
}

func TestScrapeConfigurationNamesTheRules(t *testing.T) {
	var file struct {
		Global  map[string]string
		Rules   []string `yaml:"rule_files"`
		Scrapes []struct {
			Job     string `yaml:"job_name"`
			Statics []struct {
				Targets []string
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	strict(t, filepath.Join(deploy, "prometheus", "prometheus.yaml"), &file)
	for _, rules := range file.Rules {
		if _, err := os.Stat(filepath.Join(deploy, "prometheus", rules)); err != nil {
			t.Error(err)
		}
	}
	if len(file.Rules) != 1 || len(file.Scrapes) != 1 || file.Scrapes[0].Job != "sallyport" || !slices.Equal(file.Scrapes[0].Statics[0].Targets, []string{defaultSettings()["http"].(string)}) {
		t.Errorf("%+v", file)
	}
}
