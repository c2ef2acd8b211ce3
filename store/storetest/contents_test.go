package storetest

import (
	"strings"
	"testing"
)

// A comparison that finds nothing would prove nothing.
func TestDifferences(t *testing.T) {
	all := Contents{"key": {"a": []byte("1"), "b": nil, "\x01": []byte("x")}, "empty": {}}
	for _, c := range []struct {
		name  string
		other Contents
		want  string // of the differences, separated by lines; empty: equal
	}{
		{"equal", Contents{"key": {"a": []byte("1"), "b": {}, "\x01": []byte("x")}, "empty": {}}, ""},
		{"another value", Contents{"key": {"a": []byte("2"), "b": nil, "\x01": []byte("x")}, "empty": {}}, `key/a: "1", want "2"`},
		{"one less", Contents{"key": {"a": []byte("1"), "\x01": []byte("x")}, "empty": {}}, `key/b: "", want nothing`},
		{"one more", Contents{"key": {"a": []byte("1"), "b": nil, "\x01": []byte("x"), "c": []byte("3")}, "empty": {}}, `key/c: nothing, want "3"`},
		{"not printable", Contents{"key": {"a": []byte("1"), "b": nil}, "empty": {}}, `key/01: "x", want nothing`},
		{"no bucket", Contents{"key": all["key"]}, "bucket empty is there: true, want false"},
	} {
		if got := strings.Join(all.Differences(c.other), "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
