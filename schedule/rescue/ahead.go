package rescue

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/requorum/requorum/restore/recovery"
	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/schedule/rescue/config"
)

// credentials fails where the operator's files could not convince any host.
func (d *driver) credentials() error {
	c := d.cfg.Control
	wrong := func(key string, err error) error { return &CredentialsError{Key: key, File: d.cfg.File(), Err: err} }
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return wrong("control.ca", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return wrong("control.ca", fmt.Errorf("%s has no certificate in PEM", c.CA))
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return wrong("control.cert and control.key", fmt.Errorf("%s with %s: %w", c.Cert, c.Key, err))
	}
	if end := pair.Leaf.NotAfter; d.now().After(end) {
		return wrong("control.cert", fmt.Errorf("%s has ended at %s, and no host takes it any more: have a new one issued (docs/agent-control.md has the lines)", c.Cert, end.Format(time.RFC3339)))
	}
	if from := pair.Leaf.NotBefore; d.now().Before(from) {
		return wrong("control.cert", fmt.Errorf("%s counts from %s on: look at this machine's clock", c.Cert, from.Format(time.RFC3339)))
	}
	return nil
}

// lacks says what the operator has not given that the end of a recovery needs.
func (d *driver) lacks(p *Prospect) (all []string) {
	if missing, err := d.lackedRoles(); err != nil {
		all = append(all, err.Error())
	} else if len(missing) > 0 {
		all = append(all, fmt.Sprintf("the certificate %s lacks the roles %s, without which a recovery would stop half-way: have one issued with them (%s)", d.cfg.Control.Cert, strings.Join(missing, ", "), config.Guide))
	}
	if clear := d.inTheClear(p); clear != "" {
		all = append(all, fmt.Sprintf("the backups in %s are encrypted, and it is not said for whom the full snapshot is to be that ends a recovery: give recipients or recipients-files in the cluster file (without a file: --recipient), the same as the agents'", clear))
	}
	return all
}

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

// passphrase names the backup that the chosen candidate begins with, where that takes a
// passphrase, and there is no other way to the same entry; empty otherwise.
func (p *Prospect) passphrase() string {
	c := p.Plan.Candidate(p.Plan.Chosen)
	if c == nil || c.Source == nil || p.Findings == nil {
		return ""
	}
	takes := func(backup string) bool {
		return backup != "" && slices.ContainsFunc(p.Findings.Archives, func(a recovery.Archive) bool {
			return slices.ContainsFunc(a.Fulls, func(f recovery.Full) bool { return f.ID == backup && f.Passphrase })
		})
	}
	for _, way := range append([]recovery.Source{*c.Source}, c.Source.Others...) {
		if !takes(way.Base.Backup) {
			return ""
		}
	}
	return c.Source.Base.Backup
}
