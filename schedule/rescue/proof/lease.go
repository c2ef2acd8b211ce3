package proof

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/requorum/requorum/snapshot"
)

// checkLeases looks whether the leases of what was rebuilt are there. Those that
// were short may have ended since the start, as they should.
func (p *proving) checkLeases(ctx context.Context) {
	const about = "the leases"
	if p.Image == nil {
		p.unproved("%s: which ones what was rebuilt holds is not known here", about)
		return
	}
	p.check(ctx, about, func(ctx context.Context) error {
		living := map[int64]bool{}
		asked := time.Since(p.Started)
		err := p.client.Ask(ctx, p.serving(false)[0].status, "listing leases", func(ctx context.Context, conn grpc.ClientConnInterface) error {
			all, err := pb.NewLeaseClient(conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
			for _, l := range all.GetLeases() {
				living[l.ID] = true
			}
			return err
		})
		if err != nil {
			return err
		}
		var gone []snapshot.Lease
		for _, l := range p.Image.Leases {
			// A moment more: what takes a member long to answer takes time from a lease.
			if !living[l.ID] && time.Duration(l.Left)*time.Second > asked+time.Since(p.Started) {
				gone = append(gone, l)
			}
		}
		switch {
		case len(gone) > 0:
			p.wrong("%s, such as %016x, which was to live %d s", counted(len(gone), "lease of what was rebuilt is not there", "leases of what was rebuilt are not there"), gone[0].ID, gone[0].Left)
		case p.Image.LeaseCount > len(p.Image.Leases):
			p.proved("%d of the %d leases were looked for, and are there or have ended since", len(p.Image.Leases), p.Image.LeaseCount)
		default:
			p.proved("%s there, or ended since", leases(p.Image.LeaseCount))
		}
		return nil
	})
}

func leases(n int) string {
	switch n {
	case 0:
		return "there was no lease; what was rebuilt holds none that has to be"
	case 1:
		return "the lease of what was rebuilt is"
	}
	return fmt.Sprintf("all %d leases of what was rebuilt are", n)
}
