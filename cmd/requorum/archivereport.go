package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/requorum/requorum/sinks/repository"
	"github.com/requorum/requorum/snapshot"
	"github.com/requorum/requorum/walreplay/archive"
	"github.com/requorum/requorum/walreplay/merge"
)

// archiveLine is one line of `requorum archive --output json`: the time, and
// one of the others.
type archiveLine struct {
	Time   time.Time          `json:"time"`
	State  *archive.State     `json:"state,omitempty"`
	Alarm  *alarmLine         `json:"alarm,omitempty"`
	Backup *snapshot.Manifest `json:"backup,omitempty"` // a full snapshot that was due, and taken
	Merge  *mergeLine         `json:"merge,omitempty"`
	Note   string             `json:"note,omitempty"`
}

type alarmLine struct {
	Alarm  archive.Alarm `json:"alarm"`
	Raised bool          `json:"raised"` // false: it is over
	Text   string        `json:"text"`
}

type mergeLine struct {
	Sources  int      `json:"sources"` // segments that were merged
	Segments int      `json:"segments"`
	Removed  int      `json:"removed"`       // superseded segments
	Marks    int      `json:"marks_removed"` // that told nothing new
	Locked   int      `json:"locked"`        // superseded ones that a retention keeps
	Damaged  []string `json:"damaged"`
	Error    string   `json:"error,omitempty"`
}

// archiveReporter prints lines, from several goroutines.
type archiveReporter struct {
	g  *globals
	mu sync.Mutex
}

func newArchiveReporter(g *globals) *archiveReporter { return &archiveReporter{g: g} }

func (r *archiveReporter) print(line archiveLine, text string) {
	line.Time = time.Now().UTC()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.g.output != "json" {
		fmt.Fprintf(r.g.stdout, "%s  %s\n", when(line.Time), text)
		return
	}
	enc := json.NewEncoder(r.g.stdout)
	enc.SetEscapeHTML(false)
	enc.Encode(line) //nolint:errcheck // of a broken standard output nobody could be told
}

func (r *archiveReporter) state(s archive.State) {
	s.Gaps, s.Holes, s.Alarms = emptyNotNull(s.Gaps), emptyNotNull(s.Holes), emptyNotNull(s.Alarms)
	text := s.String()
	if s.Timeline == (repository.TimelineID{}) {
		text = string(s.Role) + ": the timeline is not known yet"
		if s.LastError != "" {
			text += "; " + s.LastError
		}
	}
	if s.ArchivedRevision > 0 {
		text += fmt.Sprintf("; revision %d", s.ArchivedRevision)
	}
	if s.Spooled > 0 {
		text += "; spool " + size(s.Spooled)
	}
	if s.SnapshotDue != "" {
		text += "; a full snapshot is due: " + s.SnapshotDue
	}
	r.print(archiveLine{State: &s}, text)
}

func (r *archiveReporter) event(e archive.Event) {
	text := fmt.Sprintf("alarm %s: %s", e.Alarm, e.Text)
	if !e.Raised {
		text = fmt.Sprintf("alarm %s is over (%s)", e.Alarm, e.Text)
	}
	r.print(archiveLine{Alarm: &alarmLine{e.Alarm, e.Raised, e.Text}}, text)
}

func (r *archiveReporter) backup(m *snapshot.Manifest) {
	r.print(archiveLine{Backup: m}, fmt.Sprintf("took the full snapshot that was due: %s, revision %d, raft index %d", m.ID, m.Facts.Revision, m.Facts.RaftIndex))
}

func (r *archiveReporter) note(text string) { r.print(archiveLine{Note: text}, "note: "+text) }

func (r *archiveReporter) merge(m merge.Report, err error) {
	line := mergeLine{Sources: m.Sources, Segments: len(m.Merged), Removed: m.Removed, Marks: m.Marks, Locked: m.Locked, Damaged: []string{}}
	text := fmt.Sprintf("merged %d segments into %d, removed %d superseded ones", m.Sources, len(m.Merged), m.Removed)
	if m.Locked > 0 {
		text += fmt.Sprintf(", left %d that are locked", m.Locked)
	}
	for _, d := range m.Damaged {
		line.Damaged = append(line.Damaged, d.Error())
		text += "; damaged: " + d.Error()
	}
	if err != nil {
		line.Error = err.Error()
		text += "; failed: " + err.Error()
	}
	r.print(archiveLine{Merge: &line}, text)
}
