package main

import (
	"fmt"
	"time"

	"github.com/requorum/requorum/schedule"
	"github.com/requorum/requorum/walreplay/archive"
)

// List prices of S3 Standard, in USD for 1000 requests. Deleting is free.
const (
	putPrice = 0.005 // also for listing
	getPrice = 0.0004
)

const (
	day   = 24 * time.Hour
	month = 30 // days
)

// costReport is what archiving, and agents that know what is stored, cost in
// requests, at most: a cluster that writes all the time, and at times when it does
// not.
type costReport struct {
	Repository string        `json:"repository"`
	Interval   time.Duration `json:"interval"`
	Archivers  int           `json:"archivers"`
	Puts       int64         `json:"puts_a_day"`  // segments, while the cluster writes
	Alive      int64         `json:"alive_a_day"` // marks, while it is idle: instead of those
	Gets       int64         `json:"gets_a_day"`  // of those who stand by
	MergeGets  int64         `json:"merge_gets_a_day"`
	Lists      int64         `json:"lists_a_day"`
	Looks      int64         `json:"look_lists_a_day"`  // of the archivers' hourly look for holes
	Agents     int64         `json:"agent_lists_a_day"` // of agents, which know what is stored; 0 without them
	MonthUSD   float64       `json:"usd_a_month"`       // all of it, by list price, while the cluster writes
	IdleUSD    float64       `json:"idle_usd_a_month"`  // and while it is idle
}

// costOf reckons: the writer stores one segment an interval, each of the others
// looks for it as often, and merging reads each twice (its header, then all of
// it) and lists the last day's once an hour. Once an hour each archiver looks for
// holes: it lists what is merged, full snapshots and marks, and the small segments
// of up to two hours, which nobody merged yet. An agent lists what is stored every
// few minutes besides.
func costOf(place string, interval time.Duration, archivers int, agents bool) costReport {
	c := costReport{Repository: place, Interval: interval, Archivers: archivers}
	c.Puts = int64(day / interval)
	c.Gets = int64(archivers-1) * c.Puts
	c.MergeGets = 2 * c.Puts
	c.Alive = int64(archivers) * int64(day/archive.DefaultAlive)
	const perPage = 1000
	c.Lists = 24 * int64(archivers) * (c.Puts/perPage + 2) // segments, and marks
	c.Looks = 24 * int64(archivers) * (2*c.Puts/24/perPage + looksAlways)
	if agents {
		c.Agents = int64(archivers) * schedule.ListsADay
	}
	c.MonthUSD = month / 1000.0 * (putPrice*float64(c.Puts+c.Lists+c.Looks+c.Agents) + getPrice*float64(c.Gets+c.MergeGets))
	c.IdleUSD = month / 1000.0 * putPrice * float64(c.idle())
	return c
}

// looksAlways are the listings of a look that finds nothing new.
const looksAlways = 4

// idle are the requests of a day without writes.
func (c costReport) idle() int64 {
	return c.Alive + (2+looksAlways)*24*int64(c.Archivers) + c.Agents
}

func (e *examination) printCost(c costReport) error {
	fmt.Fprintf(e.stdout, "\nRequests of %d archivers to %s, with an interval of %s:\n", c.Archivers, c.Repository, c.Interval)
	out := newTable(e.stdout, "REQUESTS", "A DAY", "USD A MONTH")
	row := func(what string, n int64, price float64) {
		out.row(what, fmt.Sprint(n), fmt.Sprintf("%.2f", month/1000.0*price*float64(n)))
	}
	row("PUT, segments", c.Puts, putPrice)
	row("GET, standing by", c.Gets, getPrice)
	row("GET, merging", c.MergeGets, getPrice)
	row("LIST, merging", c.Lists, putPrice)
	row("LIST, looking for holes", c.Looks, putPrice)
	if c.Agents > 0 {
		row("LIST, agents' status", c.Agents, putPrice)
	}
	out.row("together", fmt.Sprint(c.Puts+c.Gets+c.MergeGets+c.Lists+c.Looks+c.Agents), fmt.Sprintf("%.2f", c.MonthUSD))
	out.row("while nothing is written", fmt.Sprint(c.idle()), fmt.Sprintf("%.2f", c.IdleUSD))
	if err := out.flush(); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "By the list price of S3 Standard (%g USD for 1000 PUT or LIST, %g for 1000 GET), without storage.\n", putPrice, getPrice)
	return nil
}
