package main

import (
	"fmt"
	"strings"
	"time"
)

const (
	titleCold  = "Structure of one snapshot, which is not in memory"
	titleWarm  = "Structure of one snapshot, which is in memory"
	titleDrill = "Drill of a backup"
)

// writeVerified is one table for each state of the page cache.
func (r *report) writeVerified(b *strings.Builder) {
	for n, v := range r.verified {
		fmt.Fprintf(b, "\n### %s\n\n| | rounds | wall | times as fast as etcdutl | CPU | peak memory | without mapped files | checked |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n", v.title)
		for i := range v.outcomes {
			o, checked := &v.outcomes[i], v.checked[i]
			if n > 0 {
				checked = "as above"
			}
			fmt.Fprintf(b, "| %s | %d | %s | %s | %.1f s | %s | %s | %s |\n", o.name, len(o.usages), seconds(o.wall()),
				times(o.fasterThan(&v.outcomes[0])), o.cpu().median.Seconds(), mebibytes(o.rss()), mebibytes(o.anon()), checked)
		}
	}
}

// writeDrilled shows the phases side by side. "In all" has the levels below the
// drill in it, too.
func (r *report) writeDrilled(b *strings.Builder) {
	order := r.drilled[0].order
	fmt.Fprintf(b, "\n### %s\n\n| cluster | rounds | %s | recovery | in all | CPU |\n| --- |%s\n", titleDrill, strings.Join(order, " | "), strings.Repeat(" ---: |", len(order)+4))
	for i := range r.drilled {
		d := &r.drilled[i]
		fmt.Fprintf(b, "| %s | %d |", d.outcome.name, len(d.recovery))
		for _, name := range order {
			fmt.Fprintf(b, " %s |", brief(d.phases[name]))
		}
		fmt.Fprintf(b, " %s | %s | %.1f s |\n", seconds(spreadOf(d.recovery)), seconds(d.outcome.wall()), d.outcome.cpu().median.Seconds())
	}
}

// brief is a median only.
func brief(all []time.Duration) string {
	median := spreadOf(all).median
	if median < 100*time.Millisecond {
		return milliseconds(median)
	}
	return fmt.Sprintf("%.2f s", median.Seconds())
}
