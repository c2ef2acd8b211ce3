package storetest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	namedTest = regexp.MustCompile(`\bTest\w+`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// CheckRules fails if the doc.go of a package names a test that its directory does not have.
func CheckRules(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		tests := map[string]bool{}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range testFunc.FindAllSubmatch(text, -1) {
				tests[string(m[1])] = true
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "doc.go"))
		require.NoError(t, err)
		all := namedTest.FindAllString(string(text), -1)
		require.NotEmpty(t, all)
		for _, name := range all {
			require.True(t, tests[name], "%s: the rules name %s, which does not exist", dir, name)
		}
	}
}
