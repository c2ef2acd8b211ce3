package main

import (
	"strings"
	"testing"
	"time"
)

// New tables take the place of the old ones, and nothing else changes.
func TestReplaceBetween(t *testing.T) {
	document := "# Title\n\nbefore\n" + beginMark + "\nold\n" + endMark + "\nafter\n"
	got, err := replaceBetween([]byte(document), "new\n", false)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(document, "\nold\n", "\n\nnew\n\n", 1); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	again, err := replaceBetween(got, "new\n", false)
	if err != nil || string(again) != string(got) {
		t.Errorf("a second time: %q, %v", again, err)
	}
	if _, err := replaceBetween([]byte("no marks"), "new", false); err == nil {
		t.Error("a document without marks was accepted")
	}
}

// A run of a part keeps the tables of the others, in the order of the document,
// and says once with what they were measured.
func TestPartKeepsOtherTables(t *testing.T) {
	old := "Machine: small.\nVersions: 1.\n\n### Backup of one member\n\n| old backup |\n\n### " + titleCold + "\n\n| old cold |\n\n### " + titleDrill + "\n\n| old drill |\n"
	document := "before\n" + beginMark + "\n\n" + old + "\n" + endMark + "\nafter\n"
	got, err := replaceBetween([]byte(document), "Machine: big.\nVersions: 2.\n\n### Archiving\n\n| new archiving |\n\n### "+titleCold+"\n\n| new cold |\n", true)
	if err != nil {
		t.Fatal(err)
	}
	about := earlier + "Machine: small. Versions: 1.\n\n"
	want := "before\n" + beginMark + "\n\nMachine: big.\nVersions: 2.\n\n### Backup of one member\n\n" + about + "| old backup |\n\n### Archiving\n\n| new archiving |\n\n### " +
		titleCold + "\n\n| new cold |\n\n### " + titleDrill + "\n\n" + about + "| old drill |\n\n" + endMark + "\nafter\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	again, err := replaceBetween(got, "Machine: big.\nVersions: 3.\n\n### Archiving\n\n| new archiving |\n", true)
	if err != nil || strings.Count(string(again), about) != 2 || strings.Count(string(again), earlier) != 3 {
		t.Errorf("a second part: %v\n%s", err, again)
	}
	// What two tables in a row have in common is said once, and is not lost.
	third, err := replaceBetween(again, "Machine: big.\nVersions: 4.\n\n### "+titleCold+"\n\n| newer cold |\n\n### "+titleAgents+"\n\n| new agents |\n\n### "+titleAgentMemory+"\n\n| new peaks |\n", true)
	if err != nil {
		t.Fatal(err)
	}
	fourth, err := replaceBetween(third, "Machine: big.\nVersions: 5.\n\n### Archiving\n\n| newer archiving |\n", true)
	if err != nil || !strings.Contains(string(fourth), titleAgentMemory+"\n\n"+same+"\n\n| new peaks |") {
		t.Errorf("a third part: %v\n%s", err, fourth)
	}
	fifth, err := replaceBetween(fourth, "Machine: big.\nVersions: 6.\n\n### "+titleAgents+"\n\n| newer agents |\n", true)
	if err != nil || !strings.Contains(string(fifth), titleAgentMemory+"\n\n"+earlier+"Machine: big. Versions: 4.\n\n| new peaks |") {
		t.Errorf("a fourth part: %v\n%s", err, fifth)
	}
	whole, err := replaceBetween(again, "Machine: big.\n\n### Archiving\n\n| all of it |\n", false)
	if err != nil || strings.Contains(string(whole), "old") {
		t.Errorf("the whole: %v\n%s", err, whole)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []time.Duration
		want   spread[time.Duration]
	}{
		{[]time.Duration{3, 1, 2}, spread[time.Duration]{2, 1, 3}},
		{[]time.Duration{8, 2, 4, 6}, spread[time.Duration]{5, 2, 8}},
		{[]time.Duration{7}, spread[time.Duration]{7, 7, 7}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%v: got %v, want %v", c.values, got, c.want)
		}
	}
}

// Ratios are of the same round, and a slow contestant has fewer rounds.
func TestFasterThan(t *testing.T) {
	fast := outcome{usages: []usage{{wall: 1 * time.Second}, {wall: 2 * time.Second}, {wall: 4 * time.Second}}}
	slow := outcome{usages: []usage{{wall: 3 * time.Second}, {wall: 8 * time.Second}}}
	if got, want := fast.fasterThan(&slow), (spread[float64]{3.5, 3, 4}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
