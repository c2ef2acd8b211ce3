package replaying

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/protobuf/proto"

	"github.com/requorum/requorum/walreplay/engine"
)

// passwords decides about hashes of passwords that differ. In the log of etcd 3.4
// is the password itself, which each member salts anew; later ones have the hash.
// What a cluster had then its members keep, each its own, for as long as the
// password stays.
type passwords struct {
	read   bool
	plain  map[string][]string // that the log gives each user
	hashed map[string][][]byte
}

// ownPassword tells whether a user's two hashes may differ: where the log gave the
// password itself, if the other one takes it too; where it gave none, if they are
// of two members.
func (p *proof) ownPassword(ctx context.Context, failed *error) func(string, []byte, []byte) bool {
	return func(user string, replayed, own []byte) bool {
		if *failed = errors.Join(*failed, p.readPasswords(ctx)); *failed != nil {
			return true
		}
		for _, h := range p.words.hashed[user] {
			if bytes.Equal(h, replayed) {
				return false
			}
		}
		for _, plain := range p.words.plain[user] {
			if bcrypt.CompareHashAndPassword(replayed, []byte(plain)) == nil {
				return bcrypt.CompareHashAndPassword(own, []byte(plain)) == nil
			}
		}
		// Of a synthetic one nobody can tell which member's they are.
		return p.base.Manifest == nil || p.source == 0 || p.base.Manifest.Source.MemberID != p.source
	}
}

// readPasswords collects what the replayed part of the log sets, once.
func (p *proof) readPasswords(ctx context.Context) error {
	if p.words.read {
		return nil
	}
	p.words = passwords{read: true, plain: map[string][]string{}, hashed: map[string][][]byte{}}
	if p.base.Index() >= p.facts.RaftIndex {
		return nil
	}
	for e, err := range p.h.Entries(ctx, p.base.Index()+1) {
		if err != nil {
			return err
		}
		if e.Index > p.facts.RaftIndex {
			return nil
		}
		if kind, err := engine.Kind(e); err != nil || !strings.HasPrefix(kind, "auth-user-") {
			continue // what cannot be applied the replay has refused
		}
		var r etcdserverpb.InternalRaftRequest
		if err := proto.Unmarshal(e.Data, &r); err != nil {
			return err
		}
		switch {
		case r.AuthUserAdd != nil:
			p.words.add(r.AuthUserAdd.Name, r.AuthUserAdd.Password, r.AuthUserAdd.HashedPassword)
		case r.AuthUserChangePassword != nil:
			p.words.add(r.AuthUserChangePassword.Name, r.AuthUserChangePassword.Password, r.AuthUserChangePassword.HashedPassword)
		}
	}
	return nil
}

func (w *passwords) add(user, plain, hashed string) {
	if hashed == "" {
		w.plain[user] = append(w.plain[user], plain)
		return
	}
	if h, err := base64.StdEncoding.DecodeString(hashed); err == nil {
		w.hashed[user] = append(w.hashed[user], h)
	}
}
