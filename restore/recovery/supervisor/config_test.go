package supervisor

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each section of a member is of a kind, and each kind is one that a member can be
// stopped and started with: a section that no kind reads would be silently ignored.
func TestEachKind(t *testing.T) {
	for field := range reflect.TypeFor[MemberConfig]().Fields() {
		if field.Type.Kind() == reflect.Struct && !slices.Contains(kinds, Kind(field.Tag.Get("yaml"))) {
			t.Errorf("the section %s is of no kind in kinds", field.Tag.Get("yaml"))
		}
	}
	for _, kind := range kinds {
		m := MemberConfig{Name: "m1", DataDir: t.TempDir(), Kind: kind}
		m.Store.Command = []string{"etcd"}
		for _, fault := range m.kindFaults("") {
			require.NotEqual(t, "kind", fault.Key, "kindFaults does not know %s", kind)
		}
		_, err := NewMember(m, t.TempDir())
		require.NoError(t, err, "newService does not know %s", kind)
	}
}
