package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"filippo.io/age"

	"github.com/requorum/requorum/restore/recovery/sources"
	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/codec"
	"github.com/requorum/requorum/sinks/place"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/signing"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/segment"
)

// retryFor is how long a rebuild waits for a repository that is away.
const retryFor = time.Minute

// askFor is how long one is tried that is asked along with others, within a time that
// is short already.
const askFor = 5 * time.Second

// opened is a repository with what was read of it.
type opened struct {
	*repository.Repository
	meter *meter
}

// open opens a repository of the configuration. The caller closes its sink.
func (h *host) open(ctx context.Context, url string, retry time.Duration) (*opened, error) {
	var keys signing.Keys
	if files := h.Config.Trust; files != nil {
		var err error
		if keys.Trust, err = signing.ParseTrust(*files); err != nil {
			return nil, err
		}
	}
	sink, err := place.Open(ctx, url, sinks.Options{Retry: sinks.Retry{For: retry}})
	if err != nil {
		return nil, err
	}
	m := &meter{Sink: repository.WithKeys(sink, keys)}
	repo, err := repository.Open(ctx, m)
	if err != nil {
		return nil, errors.Join(err, sink.Close())
	}
	return &opened{repo, m}, nil
}

// openRepositories opens those of the configuration, and reads the keys to what is
// encrypted there. It is called where a way needs them: neither one that is away nor
// a key that is missing is to hold up a host that builds from members' data.
func (s *rebuilding) openRepositories(ctx context.Context) {
	if s.looked {
		return
	}
	s.looked = true
	if s.keys, s.unopened = s.identities(); s.unopened != nil {
		return
	}
	for _, url := range s.Config.Repositories {
		o, err := s.open(ctx, url, retryFor)
		if err != nil {
			s.unopened = errors.Join(s.unopened, err)
			continue
		}
		s.repositories = append(s.repositories, o)
	}
}

// identities are the keys that were given.
func (h *host) identities() (all []age.Identity, err error) {
	for _, text := range h.Config.Identities {
		one, err := codec.ParseIdentity(text)
		if err != nil {
			return nil, fmt.Errorf("identity-files: %w", err)
		}
		all = append(all, one)
	}
	return all, nil
}

func closeAll(all []*opened) error {
	var errs []error
	for _, o := range all {
		errs = append(errs, o.meter.Close())
	}
	return errors.Join(errs...)
}

func repositoriesOf(all []*opened) (repos []*repository.Repository) {
	for _, o := range all {
		repos = append(repos, o.Repository)
	}
	return repos
}

// readable tries to read something of each piece in each repository of the cluster file,
// with what was given of keys and credentials: a manifest and the beginning of a snapshot, or
// one segment of a log.
func (h *host) readable(ctx context.Context, pieces *[]Stored, _ io.Writer) (any, error) {
	identities, err := h.identities()
	answers, errs := askEach(ctx, h, func(ctx context.Context, repo *repository.Repository) (lacks []Lack, _ error) {
		if err != nil {
			return nil, err
		}
		for _, p := range *pieces {
			if err := readSome(ctx, repo, p, identities); err != nil {
				lacks = append(lacks, Lack{Piece: p, Absent: errors.Is(err, sinks.ErrNotFound), Why: oneLine(err)})
			}
		}
		return lacks, nil
	})
	all := make([]Repository, len(answers))
	for i, url := range h.Config.Repositories {
		all[i] = Repository{URL: place.Name(url), Lacks: answers[i]}
		if errs[i] != nil {
			all[i].Error = oneLine(errs[i])
		}
	}
	return all, nil
}

// askEach asks something of each repository of the configuration, in the time that there is
// for all of them, and gives the answers in their order: one, or an error.
func askEach[T any](ctx context.Context, h *host, ask func(context.Context, *repository.Repository) (T, error)) ([]T, []error) {
	type answer struct {
		i     int
		value T
		err   error
	}
	late := fmt.Errorf("it gave no answer in %v", h.askFor)
	ctx, cancel := context.WithTimeoutCause(ctx, h.askFor, late)
	defer cancel()
	urls := h.Config.Repositories
	values, errs, answers := make([]T, len(urls)), make([]error, len(urls)), make(chan answer, len(urls))
	for i, url := range urls {
		errs[i] = late
		go func() {
			a := answer{i: i}
			var o *opened
			if o, a.err = h.open(ctx, url, askFor); a.err == nil {
				a.value, a.err = ask(ctx, o.Repository)
				a.err = errors.Join(a.err, o.meter.Close())
			}
			if a.err != nil {
				a.err = because(ctx, a.err)
			}
			answers <- a
		}()
	}
	for range urls {
		select {
		case a := <-answers:
			values[a.i], errs[a.i] = a.value, a.err
		case <-ctx.Done(): // a folder of a dead mount hears of no deadline
			return values, errs
		}
	}
	return values, errs
}

// readSome reads as much of a piece as says that it is there, and can be opened.
func readSome(ctx context.Context, repo *repository.Repository, p Stored, identities []age.Identity) error {
	if p.Backup == "" {
		return readSegment(ctx, repo, p.Timeline, identities)
	}
	m, err := snapshot.ReadManifest(ctx, repo, p.Timeline, p.Backup)
	if err != nil {
		return fmt.Errorf("backup %s of timeline %s: %w", p.Backup, p.Timeline, err)
	}
	if err := begin(ctx, repo, m, identities); err != nil {
		return fmt.Errorf("%s: %w", m.Object.Name, err)
	}
	return nil
}

// begin reads the beginning of a full snapshot, and opens it where it is encrypted.
func begin(ctx context.Context, repo *repository.Repository, m *snapshot.Manifest, identities []age.Identity) (err error) {
	in, err := repo.Sink().Open(ctx, m.Object.Name, 0, -1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if !m.Object.Encrypted() {
		_, err := io.ReadFull(in, make([]byte, 1))
		return err
	}
	r, err := codec.NewReader(ctx, in, m.Object.Encoding, identities...)
	if err != nil {
		return err
	}
	return r.Close()
}

// readSegment reads the newest segment of a log.
func readSegment(ctx context.Context, repo *repository.Repository, t repository.TimelineID, identities []age.Identity) error {
	newest, is, err := segment.Newest(ctx, repo, t)
	if err == nil && !is {
		err = fmt.Errorf("a log of timeline %s: %w", t, sinks.ErrNotFound)
	}
	if err == nil {
		_, _, err = segment.Read(ctx, repo, newest.Name(), identities...)
	}
	return err
}

// stored is what a way reads of a repository.
type stored struct {
	*opened
	base  int64 // bytes of the full snapshot; 0 where only log is read
	bytes int64
}

// stored finds a source's pieces in the repositories of the cluster file: in the one
// that it names before the others, which may be copies of it, or the same one by
// another URL.
func (s *rebuilding) stored(ctx context.Context, source sources.Source) (*stored, error) {
	timelines := map[repository.TimelineID][]sources.Piece{}
	if source.Base.Backup != "" {
		timelines[source.Base.Timeline] = nil
	}
	for _, p := range source.Log {
		t, is := sources.TimelineOf(p.Owner)
		if !is {
			continue
		}
		timelines[t] = append(timelines[t], p)
	}
	s.openRepositories(ctx)
	named := func(o *opened) bool { return o.String() == source.Base.Repository }
	var why []error
	for _, o := range slices.SortedStableFunc(slices.Values(s.repositories), func(a, b *opened) int { return sources.First(named(a), named(b)) }) {
		found, err := look(ctx, o, source, timelines)
		if err == nil {
			return found, nil
		}
		why = append(why, err)
	}
	name := source.Base.Repository
	if name == "" {
		name = "with the plan's timeline"
	}
	return nil, fmt.Errorf("the repository %s: %w", name, errors.Join(append(why, s.unopened,
		errors.New("this host reads those that the cluster file names (repositories)"))...))
}

func look(ctx context.Context, o *opened, source sources.Source, timelines map[repository.TimelineID][]sources.Piece) (*stored, error) {
	found := &stored{opened: o}
	for t, pieces := range timelines {
		if t == source.Base.Timeline && source.Base.Backup != "" {
			fulls, err := o.Fulls(ctx, t)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(fulls, func(f repository.Full) bool { return f.ID == source.Base.Backup && f.Complete })
			if i < 0 {
				return nil, fmt.Errorf("there is no backup %s of timeline %s", source.Base.Backup, t)
			}
			// The largest of its objects, for a sample.
			found.base = slices.MaxFunc(fulls[i].Objects, func(a, b sinks.Object) int { return cmp.Compare(a.Size, b.Size) }).Size
		}
		if len(pieces) == 0 {
			continue
		}
		segments, err := o.Segments(ctx, t)
		if err != nil {
			return nil, err
		}
		if len(segments) == 0 {
			return nil, fmt.Errorf("there is no log of timeline %s", t)
		}
		for _, p := range pieces {
			found.bytes += covering(segments, p.First, p.Last)
		}
	}
	found.bytes += found.base
	return found, nil
}

// covering is about how many bytes a reader of these entries reads: of merged segments
// first, then of what lies behind them.
func covering(segments []repository.Segment, first, last uint64) (bytes int64) {
	merged := slices.Clone(segments)
	slices.SortStableFunc(merged, func(a, b repository.Segment) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(b.Last, a.Last))
	})
	covered := first - 1
	for _, s := range merged {
		if s.Level > 0 && s.First <= last && s.Last > covered {
			bytes, covered = bytes+s.Object.Size, s.Last
		}
	}
	for _, s := range merged {
		if s.Level == 0 && s.First > covered && s.First <= last {
			bytes += s.Object.Size
		}
	}
	return bytes
}

// meter counts what is read of a sink, and how long that took.
type meter struct {
	sinks.Sink
	bytes, nanoseconds atomic.Int64
}

// Unwrap returns the sink without the meter.
func (m *meter) Unwrap() sinks.Sink { return m.Sink }

// Open counts what is read.
func (m *meter) Open(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	began := time.Now()
	r, err := m.Sink.Open(ctx, name, offset, length)
	m.nanoseconds.Add(int64(time.Since(began)))
	if err != nil {
		return nil, err
	}
	return &meteredReader{r, m}, nil
}

type meteredReader struct {
	io.ReadCloser
	meter *meter
}

func (r *meteredReader) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := r.ReadCloser.Read(p)
	r.meter.nanoseconds.Add(int64(time.Since(began)))
	r.meter.bytes.Add(int64(n))
	return n, err
}
