package junit

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable escapes what is no visible text, as Go's %q does. Names and keys
// come from the backup: XML has no form for most control characters, and a CI's
// log would obey them.
func printable(s string) string {
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
