// Package shell writes commands that people type.
package shell

import (
	"regexp"
	"strings"
)

// plain is text that no POSIX shell reads otherwise.
var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Quote returns words as a POSIX shell reads them: each one word, whatever is in it.
func Quote(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if !plain.MatchString(w) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted[i] = w
	}
	return strings.Join(quoted, " ")
}
