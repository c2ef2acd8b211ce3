package report

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable escapes what is no visible text, as Go's %q does. Names, keys and
// reasons come from whoever could write to the backup: a terminal or a CI's log
// would obey them, and a line break would make a line of its own of them.
func Printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x`)
			const digits = "0123456789abcdef"
			b.WriteByte(digits[s[0]>>4])
			b.WriteByte(digits[s[0]&0xf])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}
