package junit

import (
	"strings"

	"github.com/requorum/requorum/verify/report"
)

// printable is for everything that comes from a report: XML has no form for most
// control characters.
func printable(s string) string { return report.Printable(s) }

// lines is printable text of several lines: none of them can pretend to be two.
func lines(all []string) string {
	var b strings.Builder
	for i, one := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(printable(one))
	}
	return b.String()
}
