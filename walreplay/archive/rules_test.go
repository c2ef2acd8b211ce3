package archive

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each test that the rules of this package and of segment name exists.
func TestRules_NameTestsThatExist(t *testing.T) {
	named, exists := regexp.MustCompile(`\bTest\w+`), regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, dir := range []string{".", "../segment"} {
		tests := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range exists.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "doc.go"))
		require.NoError(t, err)
		all := named.FindAllString(string(text), -1)
		require.NotEmpty(t, all)
		for _, name := range all {
			require.True(t, tests[name], "%s: the rules name %s, which does not exist", dir, name)
		}
	}
}
