package shell

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestQuote: a shell gives back each word; one that needs no quotes has none.
func TestQuote(t *testing.T) {
	words := []string{"--data-dir=/var/lib/etcd", "/var/my etcd/m1", "it's", "", "$(id)", "`id`;*?[a]~", "a\nb", `\`, `"`, "#x", "m1=https://[fd00::1]:2380,m2=x", "é", "!1"}
	for c := range 127 {
		words = append(words, string(rune(c+1)))
	}
	out, err := exec.Command("sh", "-c", "printf '%s\\001\\n' "+Quote(words...)).Output()
	require.NoError(t, err)
	require.True(t, utf8.Valid(out))
	require.Equal(t, words, strings.Split(strings.TrimSuffix(string(out), "\x01\n"), "\x01\n"))
	require.Equal(t, "etcd --name=m1 '/a b'", Quote("etcd", "--name=m1", "/a b"))
}
