package web

import (
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func render(t *testing.T, st *Status) string {
	t.Helper()
	w := httptest.NewRecorder()
	New(Options{Status: statusOf(st)}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestHeaders: the policy lets in this origin only and no inline script, and
// says the hash of the style sheet that is in the page (promise 1).
func TestHeaders(t *testing.T) {
	h := New(Options{Status: statusOf(&Status{Time: atNoon})})
	for path, kind := range map[string]string{"/": "text/html; charset=utf-8", "/refresh.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'sha256-") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: policy %s", path, policy)
		}
	}
	for _, bad := range []struct{ method, path string }{{http.MethodPost, "/"}, {http.MethodGet, "/nowhere"}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(bad.method, "http://localhost"+bad.path, nil))
		if w.Code < 400 {
			t.Errorf("%s %s: %d", bad.method, bad.path, w.Code)
		}
	}
}

// TestNothingExternal: no address of another host is in what is embedded.
func TestNothingExternal(t *testing.T) {
	for name, text := range map[string]string{"page.html": pageHTML, "page.css": pageCSS, "refresh.js": string(refreshJS), "icon.svg": strings.ReplaceAll(string(iconSVG), `xmlns="http://www.w3.org/2000/svg"`, "")} {
		if at := regexp.MustCompile(`(https?:)?//[a-z]|@import|url\(["']?h`).FindString(text); at != "" {
			t.Errorf("%s: %q", name, at)
		}
		if strings.Contains(text, " style=") || strings.Contains(text, "innerHTML") {
			t.Errorf("%s: an inline style, or HTML from a string", name)
		}
	}
}

// TestContrast: text has at least 4.5:1 to what it stands on, shapes that mean
// something 3:1 (WCAG 2.2 AA), light and dark.
func TestContrast(t *testing.T) {
	light, dark, ok := strings.Cut(pageCSS, "prefers-color-scheme: dark")
	if !ok {
		t.Fatal("there is no dark scheme")
	}
	dark, _, _ = strings.Cut(dark, "\n}\n")
	light, _, _ = strings.Cut(light, "\n}\n")
	for name, css := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
			colours[m[1]] = luminance(t, m[2])
		}
		check := func(front, ground string, least float64) {
			a, okA := colours[front]
			b, okB := colours[ground]
			if c := (max(a, b) + .05) / (min(a, b) + .05); !okA || !okB || c < least {
				t.Errorf("%s: %s on %s has %.2f:1, want %v:1", name, front, ground, c, least)
			}
		}
		for _, text := range []string{"ink", "soft", "ok", "warning", "critical", "proof", "link"} {
			check(text, "surface", 4.5)
		}
		for _, text := range []string{"ink", "soft", "link"} {
			check(text, "ground", 4.5)
		}
		check("critical", "critical-ground", 4.5)
		check("surface", "ok", 4.5) // numbers of several
		check("proof", "line", 3)   // a level that is passed, beside one that is not
	}
}

func luminance(t *testing.T, hex string) float64 {
	n, err := strconv.ParseUint(hex, 16, 32)
	require.NoError(t, err)
	part := func(shift int) float64 {
		c := float64(n>>shift&255) / 255
		if c <= .03928 {
			return c / 12.92
		}
		return math.Pow((c+.055)/1.055, 2.4)
	}
	return .2126*part(16) + .7152*part(8) + .0722*part(0)
}
