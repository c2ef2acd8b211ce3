package replaying

import (
	"context"
	"fmt"

	"github.com/requorum/requorum/verify/report"
)

// hashes compares HashKV, and asks the hashes that live members served who is
// right where the databases differ.
func (p *proof) hashes(ctx context.Context) error {
	replayed, err := p.replayed.hash(ctx, 0)
	if err != nil {
		return err
	}
	own, err := p.own.hash(ctx, 0)
	if err != nil {
		return err
	}
	same := replayed.Hash == own.Hash && replayed.Revision == own.Revision && replayed.CompactedRevision == own.CompactedRevision
	switch {
	case same:
		p.say("HashKV of both is %d at revision %d, compacted revision %d", own.Hash, own.Revision, own.CompactedRevision)
	case len(p.Findings) == 0:
		p.found(report.KindHash, "", fmt.Sprintf("revision %d", own.Revision), "HashKV is %d at revision %d, compacted revision %d, in %s, and %d at %d, %d in %s",
			own.Hash, own.Revision, own.CompactedRevision, p.own.name, replayed.Hash, replayed.Revision, replayed.CompactedRevision, p.replayed.name)
	default:
		p.say("HashKV differs: %d in %s, %d in %s", own.Hash, p.own.name, replayed.Hash, p.replayed.name)
	}
	if live := p.live; live.Hash != 0 && live.Revision == own.Revision && live.CompactedRevision == own.CompactedRevision && !same {
		switch live.Hash {
		case replayed.Hash:
			p.say("The HashKV in its manifest (%s) is the replay's: so it is %s that is wrong", live.Obtained, p.own.name)
		case own.Hash:
			p.say("The HashKV in its manifest (%s) is its own: so it is the log or %s that is wrong, or that member", live.Obtained, p.base.Name)
		default:
			p.say("The HashKV in its manifest (%s) is neither's", live.Obtained)
		}
	}
	return p.lastStamps(ctx)
}
