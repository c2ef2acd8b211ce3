package yamlfile

import "testing"

func TestDurations(t *testing.T) {
	for text, want := range map[string]string{
		"90s": "1m30s", "1h30m": "1h30m", "7d": "1w", "2w": "2w", "1d12h": "1d12h", "36h": "1d12h", "1w1d": "8d", "0s": "0s", "10m": "10m", "1h": "1h",
	} {
		d, err := ParseDuration(text)
		if err != nil || d.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, d, err, want)
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%s is read as %s, %v", d, again, err)
		}
	}
	for _, text := range []string{"", "7", "-1h", "d", "1x", "99999999w", "106752d", "1h1d"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, d)
		}
	}
}
