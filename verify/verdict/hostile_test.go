package verdict

import (
	"context"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/requorum/requorum/sinks"
	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/sinks/sinktest"
	"github.com/requorum/requorum/verify/report"
)

// Where the marker is damaged and does not tell the repository's ID, a verdict of
// another repository still says nothing about this one, and slanders none of its
// own verdicts.
func TestForeignVerdictWithoutMarker(t *testing.T) {
	s, _, m := filled(t, nil)
	other := sinktest.NewMemory()
	stranger := newRepo(t, other)
	for range 6 {
		write(t, stranger, nil, verdictOn(m, report.Structure, report.Passed))
	}
	replace(t, s, 6, get(t, other, 6))
	if err := s.Delete(t.Context(), "requorum.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := sinks.Put(t.Context(), s, "requorum.json", []byte("{"), sinks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	repo, err := repository.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if repo.ID() != "" || repo.Damage() == nil {
		t.Fatal("the marker is not damaged")
	}
	if c := readAll(t, repo); objects(c) != "6" || counting(c) != "1 2 3 4 5" {
		t.Errorf("found in %q, %q count: %+v", objects(c), counting(c), c.Findings)
	}
}

// A stray object under the last number there is does not make the next verdict one
// that no listing shows.
func TestNoNumberLeft(t *testing.T) {
	s, repo, m := filled(t, nil)
	replaceWith(t, s, math.MaxUint64, []byte("stray"))
	_, err := Write(t.Context(), repo, verdictOn(m, report.Structure, report.Passed), nil)
	if err == nil || !strings.Contains(err.Error(), "verdicts/ffffffffffffffff.json is there") {
		t.Errorf("error %v", err)
	}
	if _, err := sinks.Get(t.Context(), s, repository.VerdictName(0), repository.VerdictLimit); err == nil {
		t.Error("a verdict with the number 0 was written")
	}
}

func replaceWith(t testing.TB, s sinks.Sink, sequence uint64, data []byte) {
	t.Helper()
	if _, err := sinks.Put(t.Context(), s, repository.VerdictName(sequence), data, sinks.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// late is a sink whose first listings leave out a verdict that is there.
type late struct {
	sinks.Sink
	left  string
	times int
}

func (l *late) List(ctx context.Context, prefix, after string) iter.Seq2[sinks.Object, error] {
	leave := l.times > 0
	l.times--
	return func(yield func(sinks.Object, error) bool) {
		for o, err := range l.Sink.List(ctx, prefix, after) {
			if leave && err == nil && o.Name == l.left {
				continue
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// Two verdicts that are written while a folder is listed: the second may be in the
// listing without the first, which is no break. One that stays away is.
func TestListedWhileWritten(t *testing.T) {
	s, _, _ := filled(t, nil)
	for times, want := range map[int]string{1: "", 100: "4"} {
		repo, err := repository.Open(t.Context(), &late{Sink: s, left: repository.VerdictName(4), times: times})
		if err != nil {
			t.Fatal(err)
		}
		if c := readAll(t, repo); objects(c) != want {
			t.Errorf("left out of %d listings: found in %q, want %q", times, objects(c), want)
		}
	}
}
