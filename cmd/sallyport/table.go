package main

import (
	"io"
	"strings"
	"unicode"

	eastasian "golang.org/x/text/width"
)

// leastColumn is what a column keeps when a table is made to fit.
const leastColumn = 8

// printTable writes rows under a head, with columns as wide as their widest cell. Where a line would be wider than the terminal the
// widest columns give way, and what is cut ends in an ellipsis.
func printTable(w io.Writer, head []string, rows [][]string) {
	writeTable(w, columns(w), append([][]string{head}, rows...))
}

func writeTable(w io.Writer, most int, rows [][]string) {
	widths := make([]int, 0, len(rows[0]))
	for r, row := range rows {
		for i := range row {
			rows[r][i] = plain(row[i])
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells(rows[r][i]))
		}
	}
	fit(widths, most)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = shortened(cell, widths[i])
			line.WriteString(cell + strings.Repeat(" ", widths[i]-cells(cell)+2))
		}
		sayf(w, "%s\n", fitted(strings.TrimRight(line.String(), " "), most))
	}
}

// fit takes from the widest column until all fit, or none has anything to give. The first one holds names, which tell nothing when they
// are cut: it gives way last.
func fit(widths []int, most int) {
	total := 2 * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for most > 0 && total > most {
		widest := 0
		for i, n := range widths {
			if i > 0 && n > leastColumn && (widest == 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widths[widest] <= leastColumn {
			return
		}
		widths[widest]--
		total--
	}
}

// fitted cuts a line that is wider than most; 0 is any width.
func fitted(line string, most int) string {
	if most <= 0 {
		return line
	}
	return shortened(line, most)
}

// shortened cuts a text to so many cells.
func shortened(s string, most int) string {
	if cells(s) <= most {
		return s
	}
	used := 0
	for i, r := range s {
		if used += cellsOf(r); used > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// cells is the room a text takes on a terminal.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += cellsOf(r)
	}
	return n
}

// cellsOf is two for the wide characters of East Asian scripts (Unicode TR #11), none for what joins the one before.
func cellsOf(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch eastasian.LookupRune(r).Kind() {
	case eastasian.EastAsianWide, eastasian.EastAsianFullwidth:
		return 2
	}
	return 1
}
