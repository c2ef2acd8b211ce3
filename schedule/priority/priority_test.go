package priority

import "testing"

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		nice   int
		ionice string
		ok     bool
	}{
		{0, "", true}, {10, "idle", true}, {19, "best-effort:0", true}, {1, "best-effort:7", true},
		{-1, "", false}, {20, "", false}, {0, "best-effort", false}, {0, "best-effort:8", false},
		{0, "best-effort:-1", false}, {0, "best-effort:+1", false}, {0, "realtime:4", false}, {0, "Idle", false}, {0, "idle:3", false},
	} {
		if err := Check(tt.nice, tt.ionice); (err == nil) != tt.ok {
			t.Errorf("nice %d, ionice %q: %v", tt.nice, tt.ionice, err)
		}
		if tt.ok {
			continue
		}
		if err := Set(tt.nice, tt.ionice); err == nil {
			t.Errorf("nice %d, ionice %q was set", tt.nice, tt.ionice)
		}
	}
}
