package walreplay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/walreplay/engine"
)

// GivenUp counts the writes behind a point, which a restore to it gives up. Its JSON form is
// stable.
type GivenUp struct {
	Writes int64 `json:"writes"`
	// Groups are ordered by their writes, most first. Rest counts the writes of all others,
	// if there are very many.
	Groups []Group `json:"groups"`
	Rest   int64   `json:"other_writes,omitempty"`
}

// Group is what is written to keys of one kind: of Kubernetes a resource, in a namespace if
// it has one; else the keys' first path segment.
type Group struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Writes    int64  `json:"writes"`
}

func (g Group) String() string {
	if g.Namespace == "" {
		return g.Kind
	}
	return g.Kind + " in " + g.Namespace
}

// mostGroups bounds what is remembered.
const mostGroups = 10000

// GivenUp counts the writes that the log has after an entry: puts and deletions as they were
// asked for, a deletion of a range as one. Of a transaction they are those of its success. An
// error comes with what was counted until then.
func (h *History) GivenUp(ctx context.Context, after uint64) (*GivenUp, error) {
	out := &GivenUp{Groups: []Group{}}
	counts := map[Group]int64{}
	count := func(key []byte) {
		out.Writes++
		g := groupOf(string(key))
		if _, known := counts[g]; !known && len(counts) == mostGroups {
			out.Rest++
			return
		}
		counts[g]++
	}
	var err error
	for _, s := range h.log.Coverage() {
		if s.LastIndex <= after || err != nil {
			continue
		}
		for e, failed := range h.log.Entries(ctx, max(s.FirstIndex, after+1), s.LastIndex) {
			if failed != nil {
				err = fmt.Errorf("count the writes after entry %d: %w", after, failed)
				break
			}
			engine.Writes(e, count)
		}
	}
	for g, n := range counts {
		g.Writes = n
		out.Groups = append(out.Groups, g)
	}
	slices.SortFunc(out.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Writes, a.Writes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace))
	})
	return out, err
}

// groupOf is the group of a key. The API server's keys are /registry/RESOURCE/NAMESPACE/NAME,
// with GROUP/ before a custom resource, and without a namespace if the resource has none.
func groupOf(key string) Group {
	rest, kubernetes := strings.CutPrefix(key, "/registry/")
	if !kubernetes {
		end := strings.Index(strings.TrimPrefix(key, "/"), "/")
		if end < 0 {
			return Group{Kind: name([]byte(key))}
		}
		return Group{Kind: name([]byte(key[:len(key)-len(strings.TrimPrefix(key, "/"))+end]))}
	}
	parts := strings.Split(rest, "/")
	kind := 1
	if len(parts) > 2 && (strings.Contains(parts[0], ".") || parts[0] == "services") { // services/specs/…
		kind = 2
	}
	g := Group{Kind: name([]byte(strings.Join(parts[:kind], "/")))}
	if len(parts) > kind+1 {
		g.Namespace = name([]byte(parts[kind]))
	}
	return g
}
