package rescue

import (
	"crypto/tls"
	"fmt"
	"slices"

	"github.com/requorum/requorum/schedule/control/protocol"
)

// lackedRoles are those that the operator's certificate has not and that a recovery,
// or its undo, would be refused for. Flags that cannot be changed keep no cluster
// down.
func (d *driver) lackedRoles() (missing []string, err error) {
	pair, err := tls.LoadX509KeyPair(d.cfg.Control.Cert, d.cfg.Control.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s with key %s: %w", d.cfg.Control.Cert, d.cfg.Control.Key, err)
	}
	for _, v := range protocol.Verbs() {
		if v == protocol.Flags {
			continue
		}
		if !slices.Contains(pair.Leaf.Subject.OrganizationalUnit, v.Role()) {
			missing = append(missing, v.Role())
		}
	}
	return missing, nil
}

// inTheClear names a repository whose newest backup is encrypted, where nothing
// would be that a recovery stores; empty where there is none.
func (d *driver) inTheClear(p *Prospect) string {
	if p.Findings == nil || len(d.cfg.Recipients)+len(d.cfg.RecipientsFiles) > 0 {
		return ""
	}
	for _, a := range p.Findings.Archives {
		if n := len(a.Fulls); n > 0 && a.Fulls[n-1].Encrypted {
			return a.Repository
		}
	}
	return ""
}
