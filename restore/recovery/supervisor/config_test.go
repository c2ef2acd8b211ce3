package supervisor

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/store/yamlfile"
)

// Each section of a member is of a kind, and each kind is one that a member can be
// stopped and started with: a section that no kind reads would be silently ignored.
func TestEachKind(t *testing.T) {
	for _, fields := range []reflect.Type{reflect.TypeFor[MemberConfig](), reflect.TypeFor[ServiceConfig]()} {
		for field := range fields.Fields() {
			if field.Type.Kind() == reflect.Struct && !field.Anonymous && !slices.Contains(kinds, Kind(field.Tag.Get("yaml"))) {
				t.Errorf("the section %s is of no kind in kinds", field.Tag.Get("yaml"))
			}
		}
	}
	for _, kind := range kinds {
		var s Setup
		s.Name, s.DataDir, s.Kind = "m1", t.TempDir(), kind
		k := &yamlfile.Checker{Places: &yamlfile.Places{}}
		s.Check(k, "")
		for _, err := range k.Faults {
			fault := new(yamlfile.Fault)
			require.ErrorAs(t, err, &fault)
			require.NotEqual(t, "kind", fault.Key, "Check does not know %s", kind)
		}
		_, err := NewMember(s.MemberConfig, t.TempDir())
		require.NoError(t, err, "newService does not know %s", kind)
	}
}
