package verify

import (
	"context"

	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/drill"
	"github.com/requorum/requorum/verify/report"
)

// drilled is what a scratch cluster is built from.
type drilled struct {
	name  string // of the check's object
	image snapshot.Image
	// from says what the image is, and phases how long it took to get it: a
	// recovery begins with that.
	from   string
	phases []report.Phase
}

// drill builds a cluster and adds the check.
func (r *run) drill(ctx context.Context, d drilled) error {
	c, err := drill.Run(ctx, d.image, drill.Options{ScratchDir: r.ScratchDir, Object: d.name, Progress: r.Progress, Logger: r.Logger})
	c.Phases = append(d.phases, c.Phases...)
	if d.from != "" {
		c.Compared = d.from + ": " + c.Compared
	}
	return r.took(ctx, report.Drill, d.name, c, err)
}
