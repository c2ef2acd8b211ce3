package main

import (
	"slices"
	"strings"
)

// tables are how the sections of the document begin, in their order.
var tables = []string{
	"Backup of one member", "Restore of three members", titleSizes,
	"Replay of a log", "Archiving", titleCold, titleWarm, titleDrill,
	titleAgents, titleAgentMemory, titleRecover, titleRecoverPhases,
}

// earlier begins the line below the title of a table that was measured before
// the others; same stands for the line of the table above.
const (
	earlier = "From an earlier run. "
	same    = "From the same run."
)

// merge keeps the tables of the old text that the new one has none of, and says
// with what they were measured.
func merge(old, fresh string) string {
	oldHead, kept := sections(old)
	head, all := sections(fresh)
	about := earlier + strings.Join(strings.Fields(oldHead), " ")
	has := map[int]bool{}
	for _, s := range all {
		has[place(s)] = true
	}
	above := ""
	for _, s := range kept {
		title, rest, _ := strings.Cut(s, "\n\n")
		line, body, _ := strings.Cut(rest, "\n\n")
		switch {
		case line == same:
			line = above
		case !strings.HasPrefix(line, earlier):
			line, body = about, rest
		}
		above = line
		if !has[place(s)] {
			all = append(all, title+"\n\n"+line+"\n\n"+body)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return place(a) - place(b) })
	above = ""
	for i, s := range all {
		title, rest, _ := strings.Cut(s, "\n\n")
		line, body, _ := strings.Cut(rest, "\n\n")
		if strings.HasPrefix(line, earlier) && line == above {
			all[i] = title + "\n\n" + same + "\n\n" + body
		}
		above = line
	}
	return head + "\n" + strings.Join(all, "\n")
}

// sections takes the tables apart: what stands before the first one, and each
// with its title; all of them end with one line break.
func sections(text string) (head string, all []string) {
	const begin = "### "
	parts := strings.Split("\n"+strings.Trim(text, "\n")+"\n", "\n"+begin)
	for i, p := range parts {
		parts[i] = strings.Trim(p, "\n") + "\n"
		if i > 0 {
			parts[i] = begin + parts[i]
		}
	}
	return parts[0], parts[1:]
}

// place is where a section stands in the order; one that is not known is last.
func place(section string) int {
	for i, t := range tables {
		if strings.HasPrefix(section, "### "+t) {
			return i
		}
	}
	return len(tables)
}
