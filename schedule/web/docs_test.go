package web

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatusIsDocumented: docs/json.md names every field of the status, and every kind
// of problem.
func TestStatusIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/json.md")
	require.NoError(t, err)
	_, doc, ok := strings.Cut(string(raw), "\n## Status\n")
	if !ok {
		t.Fatal("docs/json.md has no section Status")
	}
	seen := map[reflect.Type]bool{}
	fields := 0
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || !strings.HasSuffix(of.PkgPath(), "schedule/web") {
			return // others are described where they are made
		}
		seen[of] = true
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			fields++
			if name == "" || !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "."+name+"`") && !strings.Contains(doc, "`"+name+"[]`") {
				t.Errorf("docs/json.md, Status: nothing on %s.%s (%q)", of.Name(), of.Field(i).Name, name)
			}
			walk(of.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[Status]())
	_, listed, _ := strings.Cut(doc, "\nKinds of problems:")
	for _, kind := range kinds() {
		if !strings.Contains(listed, "`"+kind+"`") {
			t.Errorf("docs/json.md, Status: nothing on the kind of problem %s", kind)
		}
	}
	if fields < 60 {
		t.Errorf("only %d fields were looked at", fields)
	}
}

// TestKindsAreComplete: each alarm and each kind of problem that has a name is in the
// lists: one that is not has no severity, no next step and no metric.
func TestKindsAreComplete(t *testing.T) {
	names := regexp.MustCompile(`(?m)^\t(?:Alarm|Kind)[A-Z]\w* *(?:Alarm )?= "([a-z-]+)"`)
	for file, atLeast := range map[string]int{"../../walreplay/archive/alarm.go": 15, "status.go": 18} {
		found := names.FindAllStringSubmatch(string(readFile(t, file)), -1)
		if len(found) < atLeast {
			t.Errorf("%s: only %d names were found", file, len(found))
		}
		for _, name := range found {
			if !slices.Contains(kinds(), name[1]) {
				t.Errorf("%s names %q, which is in no list: add it to archive.Alarms or to kinds", file, name[1])
			}
		}
	}
}

// TestRoutesAreDocumented: docs/api.md has every route, with an example.
func TestRoutesAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	for _, route := range []string{"GET /healthz", "GET /readyz", "GET /metrics", "GET /api/v1/status", "GET /api/v1/backups", "GET /api/v1/jobs"} {
		_, section, ok := strings.Cut(string(raw), "**`"+route+"`**")
		section, _, _ = strings.Cut(section, "\n**`")
		_, path, _ := strings.Cut(route, " ")
		if !ok || !strings.Contains(section, "$API"+path) {
			t.Errorf("docs/api.md: %s is not there, or without an example", route)
		}
	}
}
