package restore

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay"
)

// rebuiltImage is an image that passes for one that was rebuilt from a log.
type rebuiltImage struct {
	snapshot.Image
	recipe *walreplay.Recipe
}

func (r rebuiltImage) ReplayRecipe() *walreplay.Recipe { return r.recipe }
func (r rebuiltImage) HasHash() bool                   { return true }

// grown is the same database in a longer file, as another host's replay may
// leave it.
func grown(t *testing.T, image snapshot.Image, recipe *walreplay.Recipe) rebuiltImage {
	facts, err := image.Facts(t.Context())
	require.NoError(t, err)
	path := makeDB(t, dbOptions{keys: 200, valueSize: 400, clusterVersion: facts.ClusterVersion, storageVersion: facts.StorageVersion})
	return rebuiltImage{open(t, path), recipe}
}

// TestRecipeInPlan: a plan of a rebuilt image is carried out with what another
// host rebuilt, whatever pages it has, and with nothing else.
func TestRecipeInPlan(t *testing.T) {
	recipe := &walreplay.Recipe{Base: "b", Index: 1234, Term: 7, Entries: 10, Revision: 201, HashKV: snapshot.HashKV{Hash: 42, Revision: 201, CompactedRevision: -1}}
	dir := t.TempDir()
	req := three(rebuiltImage{small(t), recipe}, dir)
	req.Target, req.Notes = "--revision 201", []string{"found it"}
	data, err := plan(t, req).Marshal()
	require.NoError(t, err)
	p, err := ParsePlan(data)
	require.NoError(t, err)
	if p.Source.Target != "--revision 201" || p.Source.Recipe == nil || p.Source.Recipe.HashKV.Hash != 42 || !strings.Contains(strings.Join(p.Notes, "\n"), "found it") {
		t.Errorf("the plan that was read: %+v", p.Source)
	}
	if strings.Contains(strings.Join(p.Notes, "\n"), "no checksum") {
		t.Errorf("notes: %q", p.Notes)
	}

	other := *recipe
	other.HashKV.Hash++
	for what, image := range map[string]snapshot.Image{
		"another hash": rebuiltImage{small(t), &other},
		"no recipe":    small(t),
	} {
		if _, err := Execute(t.Context(), p, image, ExecOptions{}); !errors.Is(err, ErrOtherImage) {
			t.Errorf("%s: %v, want ErrOtherImage", what, err)
		}
	}
	larger := grown(t, req.Image, recipe)
	if larger.Size() == p.Source.Size {
		t.Fatal("the other host's file is as long as the plan's: the test shows nothing")
	}
	r, err := Execute(t.Context(), p, larger, ExecOptions{})
	require.NoError(t, err)
	if len(r.Members) != 3 {
		t.Errorf("built %+v", r.Members)
	}
}

// A data directory's log is no majority: the plan says so.
func TestUnprovenIsSaid(t *testing.T) {
	recipe := &walreplay.Recipe{DataDir: "/old", Index: 1234, Term: 7, Unproven: "of 3 voters only one was read"}
	p := plan(t, three(rebuiltImage{small(t), recipe}, t.TempDir()))
	if !strings.Contains(strings.Join(p.Notes, "\n"), "unproven: of 3 voters") {
		t.Errorf("notes: %q", p.Notes)
	}
}
