package walreplay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/requorum/requorum/snapshot"
)

// Prospect is the image of a point before it is rebuilt, as far as it is known:
// for a plan that is only shown. It cannot be read.
func (p *Point) Prospect() snapshot.Image { return prospect{p} }

// prospect is what a point will be.
type prospect struct{ p *Point }

// errProspect says that nothing was rebuilt.
var errProspect = errors.New("it was not rebuilt: this is only a prospect")

// Name tells the base, and how much is to be replayed.
func (s prospect) Name() string {
	if s.p.Entries() == 0 {
		return s.p.Base.Name
	}
	return fmt.Sprintf("%s and up to %d entries of the log", s.p.Base.Name, s.p.Entries())
}

// Size is at most about this.
func (s prospect) Size() int64 {
	return grown(s.p.Base, s.p.Bytes)
}

// Open always fails.
func (s prospect) Open(context.Context) (io.ReadCloser, error) { return nil, errProspect }

// HasHash leaves it to the rebuilt image to say that something has none.
func (s prospect) HasHash() bool { return true }

// Facts are the base's, with the point's index and revision.
func (s prospect) Facts(context.Context) (snapshot.Facts, error) {
	f := s.p.Base.Facts
	if f.PageSize == 0 {
		f.PageSize = os.Getpagesize()
	}
	f.RaftIndex, f.Revision = s.p.Last, max(1, s.p.Revision)
	return f, nil
}
