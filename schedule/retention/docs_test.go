package retention

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/retention.md has each rule that counts, and docs/json.md each field of a policy.
func TestRulesAreDocumented(t *testing.T) {
	page := func(name string) string {
		data, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		return string(data)
	}
	rules, fields := page("retention.md"), page("json.md")
	for _, rule := range new(Policy).Counts() {
		if !strings.Contains(rules, "-"+rule.Name) {
			t.Errorf("docs/retention.md: nothing on %s", rule.Name)
		}
	}
	for field := range reflect.TypeFor[Policy]().Fields() {
		if name := field.Tag.Get("json"); name != "-" && !strings.Contains(fields, "`"+name+"`") {
			t.Errorf("docs/json.md: nothing on %s", name)
		}
	}
}
