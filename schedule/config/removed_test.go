package config

import (
	"strings"
	"testing"
)

// TestRemovedKeys_Given_RefusedWithReplacement reads a file for each removed key.
func TestRemovedKeys_Given_RefusedWithReplacement(t *testing.T) {
	for key, instead := range removedKeys {
		names := strings.Split(key, ".")
		file := strings.Repeat("}", len(names)-1)
		file = strings.Join(names, ": {") + ": value" + file + "\n"
		_, err := Parse([]byte(file), "agent.yaml")
		if err == nil || !strings.Contains(err.Error(), key+": requorum no longer has this key: "+instead) {
			t.Errorf("%q: got %v, want a refusal with %q", file, err, instead)
		}
	}
}
