package rebuilding

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"filippo.io/age"

	"github.com/requorum/requorum/schedule/control/protocol"
	"github.com/requorum/requorum/sinks/repository"
)

// Check tries what a rebuild needs of the configuration, without changing anything.
// Warnings are what only some recoveries would fail for: a repository that is away
// now, or encrypted to another key, and a certificate with which no other host sends
// its data.
func (b *Builder) Check(ctx context.Context) (warnings []string, err error) {
	_, identitiesErr := b.identities()
	_, ownerErr := b.owner()
	tried := b.tryAll(ctx, func(ctx context.Context, repo *repository.Repository, identities []age.Identity) ([]protocol.Lack, error) {
		return nil, readNewest(ctx, repo, identities)
	})
	for i, r := range tried {
		if r.Error != "" && identitiesErr == nil {
			warnings = append(warnings, fmt.Sprintf("repositories[%d] cannot be read: %s", i, r.Error))
		}
	}
	if why := b.noClient(); why != "" {
		warnings = append(warnings, why)
	}
	return warnings, errors.Join(identitiesErr, ownerErr)
}

// noClient is why other hosts would send nothing; empty where they would, and where
// the certificate cannot be read, which others tell.
func (b *Builder) noClient() string {
	l := b.config.Listen
	pair, err := tls.LoadX509KeyPair(l.Cert, l.Key)
	if err != nil {
		return ""
	}
	cert, role := pair.Leaf, protocol.Copy.Role()
	usages := cert.ExtKeyUsage
	switch {
	case len(usages) > 0 && !slices.Contains(usages, x509.ExtKeyUsageClientAuth) && !slices.Contains(usages, x509.ExtKeyUsageAny):
		return fmt.Sprintf("listen.cert: %s is no client's certificate (extendedKeyUsage clientAuth), so other hosts send it no data to rebuild from: issue it with both usages", l.Cert)
	case !slices.Contains(cert.Subject.OrganizationalUnit, role):
		return fmt.Sprintf("listen.cert: %s has not the organisational unit %s, so other hosts send it no data to rebuild from: issue it with that", l.Cert, role)
	}
	return ""
}
