package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/segment"
)

func newKeysCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make keys that sign",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "new FILE",
		Short: "Make a key that signs",
		Long: `Make an Ed25519 key in OpenSSH's format, as 'ssh-keygen -t ed25519' does: the private
key in FILE, for --signing-key, which only its owner can read; and in FILE.trust the line
that names it in a file of trusted keys, for --trust. Neither file may be there.`,
		Example: `  requorum keys new /etc/requorum/signing.key`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return g.newKey(args[0]) },
	})
	return cmd
}

func (g *globals) newKey(file string) error {
	private, public, err := signing.NewKey()
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost" // the name is for people
	}
	public = fmt.Appendf(nil, "requorum@%s %s", host, public)
	if err := writeNew(file, private); err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	if err := writeNew(file+".trust", public); err != nil {
		return fmt.Errorf("make a key: %w", errors.Join(err, os.Remove(file)))
	}
	if g.output == "json" {
		return g.printJSON(map[string]string{"key": file, "trust": file + ".trust"})
	}
	g.printf("Key: %s\nTrust: %s\n", file, file+".trust")
	return nil
}

// signed is what a copy with signatures came to.
type signed struct {
	Repository string        `json:"repository"` // the copy
	DryRun     bool          `json:"dry_run"`
	Documents  int           `json:"documents"` // that were signed, or are to be
	Objects    int           `json:"objects"`   // that were copied as they are
	Bytes      int64         `json:"bytes"`
	There      int           `json:"there"` // already
	LeftOut    []objectError `json:"left_out"`
}

func newSignCommand(g *globals) *cobra.Command {
	var repo repoFlags
	var into string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "sign --repo URL --into URL --signing-key FILE",
		Short: "Copy a repository, and sign all that is copied",
		Long: `Copy a repository to another place, and sign all that is copied with one key: what
was written without signatures, or with a key that was lost or stolen. Who trusts the key
(--trust) can restore from the copy. A signature says that you know what is there: copy
from a place that nobody else can write to, and run 'requorum verify' on it first.

With --trust only what a trusted key signed is signed anew, and the new key has to be a
trusted one, too. --insecure-unsigned signs what anybody wrote.

Documents that are damaged, or that no trusted key signed, are left out and named, and the
command then ends with 3. Snapshots and entries of the log are copied unread, and verdicts,
and what agents noted for each other, are not copied: verify the copy. A run that was
interrupted is continued by the same command.`,
		Example: `  requorum sign --repo /mnt/copy --into 's3://bucket/signed?region=eu-central-1' --signing-key /etc/requorum/signing.key
  requorum verify all --repo 's3://bucket/signed?region=eu-central-1' --trust /etc/requorum/signing.key.trust --signing-key /etc/requorum/signing.key`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			if repo.keys.signingKey == "" || into == "" {
				return usageError{errors.New("want --signing-key FILE and --into URL")}
			}
			to := repo
			to.urls = []string{into}
			to.keys.insecure = false // that is about what is read
			source, err := repo.openRepository(ctx, g)
			if err != nil {
				return err
			}
			defer source.Sink().Close() //nolint:errcheck // it was read only
			g.noteUnchecked(source.Checks())
			sink, err := to.openSink(ctx, g)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, sink.Close()) }()
			if source.Sink().String() == sink.String() {
				return usageError{errors.New("--into names the repository itself: no object is ever overwritten, name another place")}
			}
			if dryRun {
				return g.sign(ctx, source, source, true)
			}
			into, err := repository.InitCopy(ctx, sink, source)
			if err != nil {
				return err
			}
			return g.sign(ctx, source, into, false)
		},
	}
	repo.addFlags(cmd.Flags(), false)
	cmd.Flags().StringVar(&into, "into", "", "`URL` of the signed copy: an empty place, or one where an earlier run ended")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only count what would be signed and copied")
	return cmd
}

func (g *globals) sign(ctx context.Context, source, into *repository.Repository, dryRun bool) error {
	c := &signedCopy{from: source, into: into, out: signed{Repository: into.String(), DryRun: dryRun, LeftOut: []objectError{}}, meter: g.newMeter()}
	defer c.meter.finish()
	// A manifest comes behind what it describes.
	for _, manifests := range []bool{false, true} {
		if err := c.all(ctx, manifests); err != nil {
			return fmt.Errorf("copy %s to %s: %w; run the same command again to go on", source, into, err)
		}
	}
	c.meter.finish()
	var err error
	if g.output == "json" {
		err = g.printJSON(c.out)
	} else {
		verb := "Signed"
		if dryRun {
			verb = "To be signed"
		}
		g.printf("%s: %s, and %s copied with them, %s", verb, report.Counted(c.out.Documents, "document", "documents"), report.Counted(c.out.Objects, "object", "objects"), size(c.out.Bytes))
		if c.out.There > 0 {
			g.printf("; %d were there", c.out.There)
		}
		g.printf("\n")
		for _, l := range c.out.LeftOut {
			g.printf("Left out: %s\n", l.Error)
		}
	}
	if n := len(c.out.LeftOut); n > 0 {
		first, next := c.out.LeftOut[0], ""
		if slices.ContainsFunc(c.out.LeftOut, func(l objectError) bool { return errors.Is(l.err, repository.ErrForeign) }) {
			next = "; where you know that all of it is yours, --insecure-unsigned signs it"
		}
		return errors.Join(err, &snapshot.DamagedError{Object: first.Object, Offset: -1, Err: fmt.Errorf("%s left out, the first: %w%s", report.Counted(n, "object was", "objects were"), first.err, next)})
	}
	return err
}

// signedCopy copies a repository.
type signedCopy struct {
	from, into *repository.Repository
	meter      *meter

	mu  sync.Mutex
	out signed
}

// copiesAtOnce is how many objects are copied at once: most of them are small.
const copiesAtOnce = 8

func (c *signedCopy) all(ctx context.Context, manifests bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copiesAtOnce)
	for o, err := range c.from.Sink().List(ctx, "", "") {
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		if ctx.Err() != nil {
			break
		}
		if isManifest := path.Base(o.Name) == "manifest.json"; isManifest == manifests && copied(o.Name) {
			group.Go(func() error { return c.one(ctx, o) })
		}
	}
	return group.Wait()
}

// copied reports whether an object belongs into the copy: neither the marker, which is
// there, nor what only matters where agents work.
func copied(name string) bool {
	switch folder, _, _ := strings.Cut(name, "/"); folder {
	case repository.MarkerName, "verdicts", "claims", "runner", "jobs", "scratch", ".probe":
		return false
	}
	return true
}

// one copies one object, unless it is there.
func (c *signedCopy) one(ctx context.Context, o sinks.Object) error {
	there := false
	if !c.out.DryRun {
		_, err := c.into.Sink().Stat(ctx, o.Name)
		if err != nil && !errors.Is(err, sinks.ErrNotFound) {
			return err
		}
		there = err == nil
	}
	isDocument := false
	var err error
	if !there {
		isDocument, err = c.copy(ctx, o)
		if there = errors.Is(err, sinks.ErrExists); there {
			err = nil
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var damaged *snapshot.DamagedError
	switch {
	case errors.Is(err, repository.ErrAltered), errors.As(err, &damaged):
		c.out.LeftOut = append(c.out.LeftOut, objectError{o.Name, err.Error(), err})
		return nil
	case err != nil:
		return err
	case there:
		c.out.There++
	case isDocument:
		c.out.Documents++
		c.out.Bytes += o.Size
	default:
		c.out.Objects++
		c.out.Bytes += o.Size
	}
	c.meter.update("copy", c.out.Bytes, 0)
	return nil
}

func (c *signedCopy) copy(ctx context.Context, o sinks.Object) (isDocument bool, err error) {
	if _, err := repository.ParseSegmentName(o.Name); err == nil {
		block, err := readHead(ctx, c.from.Sink(), o.Name, min(o.Size, segment.HeaderSize))
		if err == nil {
			block, err = segment.SignHeader(c.from, c.into, o.Name, block)
		}
		if err != nil || c.out.DryRun {
			return true, err
		}
		return true, c.write(ctx, o, block)
	}
	if strings.HasSuffix(o.Name, ".json") {
		var body json.RawMessage
		data, err := c.from.ReadSealed(ctx, o.Name, &body)
		if err == nil {
			data, err = c.into.Sign(o.Name, data)
		}
		if err == nil && !c.out.DryRun {
			_, err = sinks.Put(ctx, c.into.Sink(), o.Name, data, sinks.CreateOptions{Lock: repository.Locked(o.Name), ContentType: "application/json"})
		}
		return true, err
	}
	if c.out.DryRun {
		return false, nil
	}
	return false, c.write(ctx, o, nil)
}

// write copies an object, with another beginning.
func (c *signedCopy) write(ctx context.Context, o sinks.Object, head []byte) error {
	r, err := c.from.Sink().Open(ctx, o.Name, int64(len(head)), -1)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := c.into.Sink().Create(ctx, o.Name, sinks.CreateOptions{Lock: repository.Locked(o.Name)})
	if err != nil {
		return err
	}
	defer w.Abort() //nolint:errcheck // a no-op after Commit
	if _, err := io.Copy(w, io.MultiReader(bytes.NewReader(head), r)); err != nil {
		return fmt.Errorf("%s: %w", o.Name, err)
	}
	_, err = w.Commit(ctx)
	return err
}
