package repository

import (
	"context"
	"fmt"
	"strings"

	"github.com/requorum/requorum/sinks"
)

const verdictsPrefix = "verdicts/"

// VerdictLimit bounds what is read as one verdict, in bytes.
const VerdictLimit = documentLimit

// VerdictName is the name of the verdict with this number in the repository's
// one chain of verdicts, from 1 on.
func VerdictName(sequence uint64) string {
	return fmt.Sprintf("%s%016x%s", verdictsPrefix, sequence, documentSuffix)
}

// ParseVerdictName reads what VerdictName wrote.
func ParseVerdictName(name string) (uint64, error) {
	var err error
	n := parseHex(strings.TrimSuffix(strings.TrimPrefix(name, verdictsPrefix), documentSuffix), &err)
	// The round trip refuses every second spelling of a name.
	if err != nil || n == 0 || VerdictName(n) != name {
		return 0, fmt.Errorf("%q is not the name of a verdict", name)
	}
	return n, nil
}

// StoredVerdict is what a listing tells of a verdict.
type StoredVerdict struct {
	Sequence uint64
	Object   sinks.Object
}

// Verdicts lists the verdicts, the oldest first. Objects with other names are
// passed over.
func (r *Repository) Verdicts(ctx context.Context) ([]StoredVerdict, error) {
	var all []StoredVerdict
	for obj, err := range r.sink.List(ctx, verdictsPrefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list the verdicts in %s: %w", r, err)
		}
		if n, err := ParseVerdictName(obj.Name); err == nil {
			all = append(all, StoredVerdict{n, obj})
		}
	}
	return all, nil
}
