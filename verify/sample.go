package verify

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/verify/report"
	"github.com/requorum/requorum/walreplay/segment"
)

// sample is the objects that are read whole, where not all are. A nil sample
// takes all.
type sample struct {
	report.Sample
	chosen map[string]bool
	listed map[string]int64 // the sizes of all, chosen or not
}

// object is one that could be chosen.
type object struct {
	name string
	size int64
}

// draw chooses objects at random until they have the bytes that were asked for.
func (e *examination) draw(ctx context.Context) (*sample, error) {
	if e.Sample == 0 {
		return nil, nil
	}
	objects, err := e.large(ctx)
	if err != nil {
		return nil, err
	}
	return newSample(objects, e.Sample, e.Seed), nil
}

// large are the objects that are worth leaving out: snapshots and log segments.
func (e *examination) large(ctx context.Context) ([]object, error) {
	var all []object
	for _, m := range e.backups {
		all = append(all, object{m.Object.Name, m.Object.StoredSize})
	}
	for _, part := range e.logs {
		segments, err := e.segmentsOf(ctx, part)
		if err != nil {
			return nil, err
		}
		for _, s := range segments {
			all = append(all, object{s.String(), s.Object.Size})
		}
	}
	return all, nil
}

func newSample(objects []object, percent float64, seed uint64) *sample {
	s := &sample{Sample: report.Sample{Percent: percent, Seed: seed, ObjectsTotal: len(objects)}, chosen: map[string]bool{}, listed: map[string]int64{}}
	for _, o := range objects {
		s.listed[o.name] = o.size
		s.BytesTotal += o.size
	}
	want := int64(math.Ceil(float64(s.BytesTotal) * percent / 100))
	random := rand.New(rand.NewPCG(seed, seed))
	for _, i := range random.Perm(len(objects)) {
		if s.Bytes >= want {
			break
		}
		s.choose(objects[i].name)
	}
	return s
}

func (s *sample) choose(name string) {
	s.chosen[name] = true
	s.Objects++
	s.Bytes += s.listed[name]
}

// forget takes out an object that is not there any more.
func (s *sample) forget(name string) {
	if s == nil {
		return
	}
	size, known := s.listed[name]
	if !known {
		return
	}
	delete(s.listed, name)
	s.ObjectsTotal--
	s.BytesTotal -= size
	if s.chosen[name] {
		delete(s.chosen, name)
		s.Objects--
		s.Bytes -= size
	}
}

// renew goes on with the segments of a timeline that are there now. Those that
// replace a chosen one, having been merged from it, are chosen in its place.
func (s *sample) renew(t repository.TimelineID, headers []segment.Header, damaged []segment.Damage) {
	if s == nil {
		return
	}
	there := map[string]bool{}
	for _, d := range damaged {
		there[d.Name] = true
	}
	for _, h := range headers {
		there[h.Name()] = true
	}
	var replaced []uint64 // what the chosen ones that are gone began with
	for name := range s.listed {
		n, err := repository.ParseSegmentName(name)
		if err != nil || n.Timeline != t || there[name] {
			continue // a snapshot, or of another log
		}
		if s.chosen[name] {
			replaced = append(replaced, n.First)
		}
		s.forget(name)
	}
	for _, h := range headers {
		name := h.Name()
		if _, known := s.listed[name]; known {
			continue
		}
		s.listed[name] = h.Size()
		s.ObjectsTotal++
		s.BytesTotal += h.Size()
		if slices.ContainsFunc(replaced, func(first uint64) bool { return h.FirstIndex <= first && first <= h.LastIndex }) {
			s.choose(name)
		}
	}
}

// coverage says what a run like this finds. Each object is as likely to be chosen
// as any other.
// were is how it is said: of a run "were", of a plan "would be".
func (s *sample) coverage(were string) string {
	if s.Objects == s.ObjectsTotal {
		return "all objects " + were + " read"
	}
	if s.Objects == 0 {
		return "what was chosen is not there any more: no object was read whole"
	}
	p := float64(s.Objects) / float64(s.ObjectsTotal)
	runs := math.Ceil(math.Log(1-0.95) / math.Log(1-p))
	return fmt.Sprintf("%d of %d objects %s read whole, %.1f %% of the bytes; of the others the names, sizes, manifests and headers. One damaged object is found by such a run with a probability of %.1f %%, and with 95 %% by %.0f runs with other seeds",
		s.Objects, s.ObjectsTotal, were, 100*float64(s.Bytes)/float64(max(s.BytesTotal, 1)), 100*p, runs)
}

// leaves reports whether an object is left out.
func (s *sample) leaves(name string) bool { return s != nil && !s.chosen[name] }

// told is what the report says; nil where all was read.
func (s *sample) told() *report.Sample { return s.tell("were") }

// planned is what a plan says of it.
func (s *sample) planned() *report.Sample { return s.tell("would be") }

func (s *sample) tell(were string) *report.Sample {
	if s == nil {
		return nil
	}
	s.Coverage = s.coverage(were)
	return &s.Sample
}
