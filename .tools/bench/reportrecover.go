package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	titleRecover       = "Recovery of three hosts on which all members were killed"
	titleRecoverPhases = "Phases of `requorum recover`"
)

// writeRecovered is requorum beside what one does by hand, then its phases.
func (r *report) writeRecovered(b *strings.Builder) {
	fmt.Fprintf(b, "\n### %s\n\n%s on disk, %d keys; %s of writes before the crash.\n\n", titleRecover, mebibytes(r.crashSize.bytes), r.crashSize.Keys, crashLoad)
	b.WriteString("| | rounds | until a write is acknowledged | until three voters serve | until the command ends | acknowledged writes lost | of | peak memory, all hosts together | without mapped files |\n| --- |" + strings.Repeat(" ---: |", 8) + "\n")
	for i := range r.recovered {
		o := &r.recovered[i]
		var all recovery
		for _, one := range o.rounds {
			all.acked += one.acked
			all.lost += one.lost
			all.peak = peak{max(all.peak.rss, one.peak.rss), max(all.peak.anon, one.peak.anon)}
		}
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %d | %d | %s | %s |\n", o.name, len(o.rounds),
			seconds(o.times(func(one recovery) time.Duration { return one.write })),
			seconds(o.times(func(one recovery) time.Duration { return one.whole })),
			seconds(o.times(func(one recovery) time.Duration { return one.ended })),
			all.lost, all.acked, mebibytes(all.peak.rss), mebibytes(all.peak.anon))
	}
	r.writeRecoverPhases(b)
}

// writeRecoverPhases shows them side by side, for the ways that report them.
func (r *report) writeRecoverPhases(b *strings.Builder) {
	var reported []recovered
	for _, o := range r.recovered {
		if len(o.rounds[0].phases) > 0 {
			reported = append(reported, o)
		}
	}
	if len(reported) == 0 {
		return
	}
	order := phaseNames(reported)
	fmt.Fprintf(b, "\n### %s\n\n| | %s | reported RTO |\n| --- |%s\n", titleRecoverPhases, strings.Join(order, " | "), strings.Repeat(" ---: |", len(order)+1))
	for _, o := range reported {
		fmt.Fprintf(b, "| %s |%s %s |\n", o.name, o.medians(order), seconds(o.times(func(one recovery) time.Duration { return one.rto })))
	}
}

// phaseNames are those of all rounds, in the order in which they come first.
func phaseNames(all []recovered) []string {
	var names []string
	for _, o := range all {
		for _, one := range o.rounds {
			for _, p := range one.phases {
				if !slices.Contains(names, p.Name) {
					names = append(names, p.Name)
				}
			}
		}
	}
	return names
}

// medians are the cells of phases, each of the rounds that had it.
func (o *recovered) medians(names []string) string {
	var b strings.Builder
	for _, name := range names {
		var all []time.Duration
		for _, one := range o.rounds {
			for _, p := range one.phases {
				if p.Name == name {
					all = append(all, p.Took)
				}
			}
		}
		if len(all) == 0 {
			b.WriteString(" |")
			continue
		}
		fmt.Fprintf(&b, " %s |", brief(all))
	}
	return b.String()
}

func (o *recovered) times(of func(recovery) time.Duration) spread[time.Duration] {
	all := make([]time.Duration, len(o.rounds))
	for i, one := range o.rounds {
		all[i] = of(one)
	}
	return spreadOf(all)
}
