package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// restoreFolder holds one contestant's result, which the next one removes.
const restoreFolder = "restored"

// restores are etcdutl, once for each member, and requorum, once for all.
func (b *bench) restores(members []member) []contestant {
	cluster := initialCluster(members...)
	rival := func(ctx context.Context, m member, flags ...string) (usage, error) {
		args := append([]string{"snapshot", "restore", b.path(plainFile), "--name", m.name, "--data-dir", m.dataDir,
			"--initial-cluster", cluster, "--initial-advertise-peer-urls", m.peerURL, "--initial-cluster-token", "bench"}, flags...)
		return measure(ctx, nil, b.etcd("etcdutl"), args...)
	}
	thrice := func(ctx context.Context, flags ...string) (usage, error) {
		var sum usage
		for _, m := range members {
			u, err := rival(ctx, m, flags...)
			if err != nil {
				return sum, err
			}
			sum = sum.then(u)
		}
		return sum, nil
	}
	ours := func(ctx context.Context, from ...string) (usage, error) { return b.restoreFrom(ctx, members, from...) }
	all := []contestant{
		{name: "`etcdutl snapshot restore`, three times", run: func(ctx context.Context) (usage, error) { return thrice(ctx) }},
		{name: "the same with `--bump-revision 1000000000 --mark-compacted`", run: func(ctx context.Context) (usage, error) {
			return thrice(ctx, "--bump-revision", "1000000000", "--mark-compacted")
		}},
		{name: "`etcdutl snapshot restore`, all three at once", run: func(ctx context.Context) (usage, error) {
			var runs []func() (usage, error)
			for _, m := range members {
				runs = append(runs, func() (usage, error) { return rival(ctx, m) })
			}
			return together(runs...)
		}},
		{name: "`cp` of the plain file three times, and `sync`", run: func(ctx context.Context) (usage, error) {
			args := []string{"-c", `from=$1; shift; for d; do mkdir -p "$d/member/snap" && cp "$from" "$d/member/snap/db" && sync "$d/member/snap/db" || exit; done`, "sh", b.path(plainFile)}
			for _, m := range members {
				args = append(args, m.dataDir)
			}
			return measure(ctx, nil, "sh", args...)
		}},
		{name: "`requorum restore`, encrypted", run: func(ctx context.Context) (usage, error) {
			return ours(ctx, "--repo", "file://"+b.path(sealedRepo), "--identity", b.path(identityFile))
		}},
		{name: "`requorum restore` from S3", run: func(ctx context.Context) (usage, error) {
			return ours(ctx, "--repo", b.s3URL())
		}},
		{name: "`requorum restore` from the plain file", run: func(ctx context.Context) (usage, error) {
			return ours(ctx, "--file", b.path(plainFile))
		}},
	}
	for i := range all {
		b.ofRestores(&all[i], members)
	}
	// Last in each round that goes forwards: the result is booted afterwards.
	return append(all, b.restorePlain(members))
}

// ofRestores has a contestant begin without a result, and end with one for each member.
func (b *bench) ofRestores(c *contestant, members []member) {
	folder := b.path(restoreFolder)
	c.prepare = func() error { return errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o700)) }
	c.stored = func() (int64, error) { return databases(members) }
}

// restoreFrom is requorum's, of all members at once.
func (b *bench) restoreFrom(ctx context.Context, members []member, from ...string) (usage, error) {
	args := append([]string{"restore", "--initial-cluster", initialCluster(members...), "--data-dir", filepath.Join(b.path(restoreFolder), "{name}")}, from...)
	return measure(ctx, b.s3Env(), b.requorum(), args...)
}

// restorePlain is that from a folder, without encryption.
func (b *bench) restorePlain(members []member) contestant {
	c := contestant{name: "`requorum restore`", run: func(ctx context.Context) (usage, error) {
		return b.restoreFrom(ctx, members, "--repo", "file://"+b.path(plainRepo))
	}}
	b.ofRestores(&c, members)
	return c
}

// databases checks that every member got its database, and adds up their
// sizes.
func databases(members []member) (int64, error) {
	var sum int64
	for _, m := range members {
		n, err := bytesUnder(filepath.Join(m.dataDir, "member", "snap", "db"))
		if err != nil {
			return 0, fmt.Errorf("member %s was not restored: %w", m.name, err)
		}
		sum += n
	}
	return sum, nil
}

// newMembers are the members of the cluster that restores make.
func (b *bench) newMembers() ([]member, error) {
	var all []member
	for i := range 3 {
		name := fmt.Sprintf("m%d", i+1)
		m, err := newMember(name, b.path(restoreFolder, name))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// startCluster starts the members of one cluster, which answer only together.
func (b *bench) startCluster(ctx context.Context, members []member) ([]*server, error) {
	type started struct {
		server *server
		err    error
	}
	results := make(chan started)
	for _, m := range members {
		go func() {
			s, err := b.startMember(ctx, m, initialCluster(members...), "--initial-cluster-state", "existing")
			results <- started{s, err}
		}()
	}
	var servers []*server
	var errs []error
	for range members {
		r := <-results
		if r.server != nil {
			servers = append(servers, r.server)
		}
		errs = append(errs, r.err)
	}
	return servers, errors.Join(errs...)
}

// countKeys asks one member, through its quorum.
func (b *bench) countKeys(ctx context.Context, endpoint string) (int64, error) {
	out, err := output(ctx, b.etcd("etcdctl"), "--endpoints", endpoint, "get", keyPrefix, "--prefix", "--count-only", "--write-out", "fields")
	if err != nil {
		return 0, fmt.Errorf("count the keys at %s: %w", endpoint, err)
	}
	_, count, _ := strings.Cut(string(out), `"Count" : `)
	var keys int64
	if _, err := fmt.Sscan(count, &keys); err != nil {
		return 0, fmt.Errorf("count the keys at %s: in %q: %w", endpoint, out, err)
	}
	return keys, nil
}
