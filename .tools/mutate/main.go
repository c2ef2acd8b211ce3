// Command mutate changes one operator or statement at a time in files that hold rules, and
// runs tests against each change: a change that all tests pass shows a rule without a test.
//
//	go run ./.tools/mutate -count 50 -test './walreplay/segment' walreplay/segment/view.go
//
// Nothing in the checkout is written: the compiler gets each changed file as an overlay.
// It prints a line for each change, and ends with 1 if any was not caught.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// mutation changes a parsed file, and undoes that.
type mutation struct {
	file     string
	position token.Position
	text     string
	do, undo func()
}

// file is one that was parsed.
type file struct {
	set *token.FileSet
	ast *ast.File
}

var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD,
}

func main() {
	log.SetFlags(0)
	count := flag.Int("count", 50, "how many changes to try, of all that are possible")
	seed := flag.Uint64("seed", 1, "which ones")
	tests := flag.String("test", "./...", "packages whose tests are run, with -short")
	limit := flag.Duration("timeout", 5*time.Minute, "how long one run may take; a longer one counts as caught")
	flag.Parse()
	files := map[string]*file{}
	var all []mutation
	for _, path := range flag.Args() {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		files[path] = &file{set, parsed}
		all = append(all, mutations(path, files[path])...)
	}
	random := rand.New(rand.NewPCG(*seed, *seed))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	results := map[string]int{}
	for _, m := range all[:min(*count, len(all))] {
		m.do()
		result, err := try(m.file, files[m.file], *tests, *limit)
		m.undo()
		if err != nil {
			log.Fatal(err)
		}
		results[result]++
		fmt.Printf("%s:%d:%d: %s: %s\n", m.file, m.position.Line, m.position.Column, m.text, result)
	}
	fmt.Printf("%d possible; caught %d, survived %d, not compiled %d\n", len(all), results["caught"], results["SURVIVED"], results["not compiled"])
	if results["SURVIVED"] > 0 {
		os.Exit(1)
	}
}

// mutations are the changes that can be made to a file.
func mutations(path string, f *file) []mutation {
	var all []mutation
	add := func(at token.Pos, text string, do, undo func()) {
		all = append(all, mutation{path, f.set.Position(at), text, do, undo})
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if to, ok := swapped[n.Op]; ok {
				from := n.Op
				add(n.OpPos, fmt.Sprintf("%s becomes %s", from, to), func() { n.Op = to }, func() { n.Op = from })
			}
		case *ast.IfStmt:
			cond := n.Cond
			add(n.Pos(), "the condition is negated", func() { n.Cond = &ast.UnaryExpr{Op: token.NOT, X: &ast.ParenExpr{X: cond}} }, func() { n.Cond = cond })
		case *ast.BlockStmt:
			for i, s := range n.List {
				if call, ok := s.(*ast.ExprStmt); ok {
					add(s.Pos(), "the call is left out", func() { n.List[i] = &ast.EmptyStmt{} }, func() { n.List[i] = call })
				}
			}
		}
		return true
	})
	return all
}

// try runs the tests with the file as it is now.
func try(path string, f *file, tests string, limit time.Duration) (string, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	var changed bytes.Buffer
	if err := printer.Fprint(&changed, f.set, f.ast); err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{absolute: filepath.Join(dir, "changed.go")}})
	if err != nil {
		return "", err
	}
	for name, data := range map[string][]byte{"changed.go": changed.Bytes(), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	with := "-overlay=" + filepath.Join(dir, "overlay.json")
	if exec.CommandContext(ctx, "go", "build", with, "./"+filepath.Dir(path)).Run() != nil {
		return "not compiled", nil
	}
	run := exec.CommandContext(ctx, "go", append([]string{"test", "-short", "-failfast", "-vet=off", with}, strings.Fields(tests)...)...)
	run.WaitDelay = 10 * time.Second
	if run.Run() != nil {
		return "caught", nil
	}
	return "SURVIVED", nil
}
