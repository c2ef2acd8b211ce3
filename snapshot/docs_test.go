package snapshot_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
)

// docs/format.md names every field of a manifest.
func TestManifestIsDocumented(t *testing.T) {
	raw, err := os.ReadFile("../docs/format.md")
	require.NoError(t, err)
	_, doc, ok := strings.Cut(string(raw), "\n### A manifest\n")
	require.True(t, ok, "docs/format.md has no section A manifest")
	doc, _, _ = strings.Cut(doc, "\n## ")
	fields := 0
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || !strings.HasSuffix(of.PkgPath(), "requorum/snapshot") && !strings.HasSuffix(of.PkgPath(), "sinks/codec") {
			return // others have sections of their own
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			fields++
			if !of.Field(i).Anonymous && !strings.Contains(doc, "`"+name+"`") && !strings.Contains(doc, "."+name+"`") {
				t.Errorf("docs/format.md, A manifest: nothing on %s.%s (%q)", of.Name(), of.Field(i).Name, name)
			}
			walk(of.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[snapshot.Manifest]())
	if fields < 60 {
		t.Errorf("only %d fields were looked at", fields)
	}
}
