// Command longtests prints what "go test" has to be given to run each test that does more
// without -short, and no other: -run with their names, and their packages. What such a
// test calls in its own package counts as the test's.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What asks for the long form, or for a server that only the long form has.
var asks = []string{"Short", "Some", "Amount", "StartMinio", "StartRclone"}

func main() {
	files := map[string][]*ast.File{} // by folder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		dir := filepath.Dir(path)
		files[dir] = append(files[dir], f)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	names, dirs := map[string]bool{}, map[string]bool{}
	for dir, in := range files {
		for _, name := range long(in) {
			names[name], dirs["./"+dir] = true, true
		}
	}
	if len(names) == 0 {
		log.Fatal("no test has a longer form: run it in the project's folder")
	}
	fmt.Fprintf(os.Stdout, "-run ^(%s)$ %s\n", strings.Join(slices.Sorted(maps.Keys(names)), "|"), strings.Join(slices.Sorted(maps.Keys(dirs)), " "))
}

// long returns the tests in a folder's files that ask for the long form, or call a function that does.
func long(files []*ast.File) []string {
	calls := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if calls[fn.Name.Name] == nil { // methods of two types may have one name: both count
				calls[fn.Name.Name] = map[string]bool{}
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && slices.Contains(asks, n.Sel.Name) && (x.Name == "testing" || x.Name == "storetest") {
						calls[fn.Name.Name][""] = true
					} else {
						calls[fn.Name.Name][n.Sel.Name] = true
					}
				case *ast.Ident:
					calls[fn.Name.Name][n.Name] = true
				}
				return true
			})
		}
	}
	asking := map[string]bool{"": true}
	for grown := true; grown; {
		grown = false
		for name, called := range calls {
			for c := range called {
				if asking[c] && !asking[name] {
					asking[name], grown = true, true
				}
			}
		}
	}
	var tests []string
	for name := range asking {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests = append(tests, name)
		}
	}
	return tests
}
