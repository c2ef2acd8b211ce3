package rebuilding

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/requorum/requorum/schedule/control/client"
	"github.com/requorum/requorum/schedule/control/protocol"
)

// peer is another host's control process, and what it has of a run.
type peer struct {
	client      *client.Client
	files       []protocol.File
	separateLog bool
}

// peer reaches a host as this host: its own certificate is also a client's, with
// the role of Copy. Hosts are asked once.
func (s *session) peer(ctx context.Context, at protocol.Location) (*peer, error) {
	if p := s.peers[at]; p != nil {
		return p, nil
	}
	l := s.config.Listen
	c, err := client.New(client.Options{Address: at.Address, Member: at.Member, Run: at.Run, CA: l.ClientCA, Cert: l.Cert, Key: l.Key})
	if err != nil {
		return nil, err
	}
	p := &peer{client: c}
	ctx, cancel := context.WithTimeoutCause(ctx, s.stall, fmt.Errorf("no answer in %v", s.stall))
	defer cancel()
	if p.files, err = c.Files(ctx, protocol.Aside); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w (host %s, reached with %s, which needs to be a client's certificate with the organisational unit %s)", err, at.Address, l.Cert, protocol.Copy.Role())
	}
	for _, f := range p.files {
		// They become names here.
		if !filepath.IsLocal(f.Name) || f.Size < 0 {
			c.Close()
			return nil, fmt.Errorf("host %s lists a file %q: that is no name of a file of a member", at.Address, f.Name)
		}
	}
	p.separateLog = slices.ContainsFunc(p.files, func(f protocol.File) bool { return strings.HasPrefix(f.Name, "wal/") })
	s.peers[at] = p
	return p, nil
}
