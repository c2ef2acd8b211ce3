package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	titleAgents      = "Agents beside a cluster of three"
	titleAgentMemory = "Peak memory of an agent, and of its jobs' processes"
)

// minP99 is how many latencies show what the slowest hundredth is.
const minP99 = 1000

// writeAgents is what agents cost a cluster, and their memory.
func (r *report) writeAgents(b *strings.Builder) {
	if len(r.beside) > 0 {
		fmt.Fprintf(b, "\n### %s\n\n%s on disk, %d keys, %d puts of 256 B a second.\n\n", titleAgents, mebibytes(r.besideSize.bytes), r.besideSize.Keys, quietPace.rate)
		b.WriteString("| | rounds | puts | a client's put: median | p99 | times as long as without agents: median | p99 | CPU of the three agents | of the one that took most | of their jobs' processes | of etcd | the agents', of etcd's |\n| --- |" + strings.Repeat(" ---: |", 11) + "\n")
		for i := range r.beside {
			r.beside[i].write(b, &r.beside[0])
		}
	}
	if len(r.agentPeaks) > 0 {
		fmt.Fprintf(b, "\n### %s\n\n| | database | peak memory | without mapped files | limit | what it bounds |\n| --- | ---: | ---: | ---: | ---: | --- |\n", titleAgentMemory)
		for _, p := range r.agentPeaks {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", p.name, mebibytes(p.database), mebibytes(p.peak.rss), mebibytes(p.peak.anon), mebibytes(p.limit), p.of)
		}
	}
}

// write is a line of the table.
func (s *beside) write(b *strings.Builder, alone *beside) {
	all := slices.Concat(s.latency...)
	slices.Sort(all)
	fmt.Fprintf(b, "| %s | %d | %d | %s | %s | %s | %s |", s.name, len(s.latency), len(all),
		milliseconds(quantile(all, 0.5)), s.p99(all), times(s.longer(alone, 0.5)), s.longerP99(alone))
	var sum spent
	for _, one := range s.spent {
		sum.over += one.over
		sum.agents += one.agents
		sum.busiest += one.busiest
		sum.children += one.children
		sum.etcd += one.etcd
	}
	core := func(d time.Duration) string {
		if s == alone {
			return ""
		}
		return percent(d, sum.over) + " of a core"
	}
	fmt.Fprintf(b, " %s | %s | %s | %s of a core |", core(sum.agents), core(sum.busiest), core(sum.children), percent(sum.etcd, sum.over))
	if s == alone {
		b.WriteString(" |\n")
		return
	}
	fmt.Fprintf(b, " %s |\n", percent(sum.agents, sum.etcd))
}

func (s *beside) p99(all []time.Duration) string {
	if len(all) < minP99 {
		return "too few puts"
	}
	return milliseconds(quantile(all, 0.99))
}

// longer is how many times as long a put took as without agents in the same
// round.
func (s *beside) longer(alone *beside, q float64) spread[float64] {
	ratios := make([]float64, len(s.latency))
	for i := range ratios {
		ratios[i] = quantile(s.latency[i], q).Seconds() / quantile(alone.latency[i], q).Seconds()
	}
	return spreadOf(ratios)
}

func (s *beside) longerP99(alone *beside) string {
	for _, round := range s.latency {
		if len(round) < minP99 {
			return "too few puts"
		}
	}
	return times(s.longer(alone, 0.99))
}

// percent writes a part of a whole.
func percent(part, whole time.Duration) string {
	return fmt.Sprintf("%.1f %%", 100*part.Seconds()/whole.Seconds())
}
