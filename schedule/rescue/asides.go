package rescue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/requorum/requorum/restore"
	"github.com/requorum/requorum/schedule/rescue/journal"
)

// asideOf is what a run has set aside on a host, as that remembers it; nil where it has
// set aside nothing.
func (h *host) asideOf(run string) *restore.Aside {
	i := slices.IndexFunc(h.asides, func(a restore.Aside) bool { return a.Run == run })
	if i < 0 {
		return nil
	}
	return &h.asides[i]
}

// inheritAsides writes down what the other driver's run has set aside, as its hosts
// remember it.
func (d *driver) inheritAsides(run string) error {
	for _, h := range d.present() {
		if aside := h.asideOf(run); aside != nil {
			if err := d.write(journal.Entry{Event: journal.Done, Phase: string(PhaseSetAside), Host: h.Member}, aside); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftBy are the hosts on which a run has set data aside, and which get no new member.
func (d *driver) leftBy(run string, names []string) (all []string) {
	for _, h := range d.present() {
		if h.asideOf(run) != nil && !slices.Contains(names, h.Member) {
			all = append(all, h.Member)
		}
	}
	return all
}

// oldData says what to do in the end with what was set aside on a host; empty where
// nothing was.
func (d *driver) oldData(h *host) string {
	var aside restore.Aside
	if done, err := d.known.result(PhaseSetAside, h.Member, &aside); err != nil || !done || len(aside.Paths()) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s: the old data is in %s; remove it when you are sure that you don't need it", h.Member, strings.Join(aside.Paths(), " and "))
	if d.known.decision.Inherited == "" {
		text += " (--undo puts it back until then)"
	}
	return text
}
