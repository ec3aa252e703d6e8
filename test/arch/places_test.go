package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// aPlace is a link of a document to a declaration: its name in code font, and a Go file.
var aPlace = regexp.MustCompile("\\[`([\\w.]+)`\\]\\(([^)#\\s]+\\.go)\\)")

// placed are the documents that lead readers through the code, and how many declarations each must name at least.
var placed = map[string]int{"docs/how-a-change-travels.md": 25, "docs/where-to-find.md": 30}

// TestDocumentsNameWhatThereIs: each declaration that a document links to is in the file that it links to.
func TestDocumentsNameWhatThereIs(t *testing.T) {
	named := map[string]int{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel("../..", path)
		if err != nil {
			return err
		}
		found, faults := places(filepath.Dir(path), string(text))
		named[filepath.ToSlash(relative)] = found
		for _, fault := range faults {
			t.Errorf("%s: %s", relative, fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for document, least := range placed {
		if named[document] < least {
			t.Errorf("%s names %d declarations, want %d at least", document, named[document], least)
		}
	}
}

// TestAPlaceThatIsNotThereIsFound: a file that does not exist, and a declaration that the file does not have.
func TestAPlaceThatIsNotThereIsFound(t *testing.T) {
	dir := t.TempDir()
	text := "package a\n\ntype T[K any] struct{}\n\nfunc (t *T[K]) M() {}\n\nfunc F() {}\n\nconst C, D = 1, 2\n"
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"see [`T`](a.go), [`T.M`](a.go), [`F`](a.go), [`D`](a.go)": "",
		"see [`M`](a.go)":              "a.go declares no M",
		"see [`F`](b.go)":              "b.go is not there",
		"see [F](b.go), `F`, [`F`](b)": "",
	} {
		_, faults := places(dir, text)
		if got := strings.Join(faults, "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// withoutExample are packages below pkg that need no example, with the reason.
var withoutExample = map[string]string{
	"pkg/events/stream/certs": "certificates of tests",
	"pkg/events/stream/port":  "free ports of tests",
}

// TestEachPublicPackageHasAnExample: each package below pkg and the grammar of controllers, but packages of tests.
func TestEachPublicPackageHasAnExample(t *testing.T) {
	has := map[string]bool{"services/reconcilers/reconcile": false}
	for _, file := range goFiles(t, "pkg") {
		dir := filepath.ToSlash(filepath.Dir(file))
		if !strings.HasSuffix(dir, "test") && !strings.Contains(dir, "/internal/") && withoutExample[dir] == "" {
			has[dir] = false
		}
	}
	for dir := range has {
		text, err := os.ReadFile(filepath.Join("../..", dir, "example_test.go"))
		if err != nil || !strings.Contains(string(text), "\nfunc Example") {
			t.Errorf("%s has no example: %v", dir, err)
		}
	}
	if len(has) < 15 {
		t.Errorf("%d packages", len(has))
	}
}

// TestEveryLockIsInTheTable: each type below services and pkg/events that has a mutex is named in docs/concurrency.md.
// Packages of tests have locks of their own.
func TestEveryLockIsInTheTable(t *testing.T) {
	page, found := read(t, "docs/concurrency.md"), 0
	for _, file := range append(goFiles(t, "services"), goFiles(t, "pkg/events")...) {
		if strings.Contains(file, "test/") || strings.Contains(file, "/internal/") || strings.Contains(file, "/stream/memory/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), "../../"+file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range locked(parsed) {
			found++
			if link := "[`" + name + "`](../" + file + ")"; !strings.Contains(page, link) {
				t.Errorf("docs/concurrency.md has no %s", link)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d types have a lock", found)
	}
}

// locked are the struct types of a file that have a mutex as a field.
func locked(file *ast.File) (names []string) {
	for _, declaration := range file.Decls {
		d, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && hasLock(s.Type) {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}

func hasLock(of ast.Expr) bool {
	s, ok := of.(*ast.StructType)
	if !ok {
		return false
	}
	for _, field := range s.Fields.List {
		if f, ok := field.Type.(*ast.SelectorExpr); ok && strings.HasSuffix(f.Sel.Name, "Mutex") {
			return true
		}
	}
	return false
}

// TestWindowsNameWhatShowsThem: each row of docs/doubled-or-lost.md has a line of a service's log, or says that there is
// none, and a metric of docs/metrics.md.
func TestWindowsNameWhatShowsThem(t *testing.T) {
	page, metrics := read(t, "docs/doubled-or-lost.md"), read(t, "docs/metrics.md")
	var source strings.Builder
	for _, file := range goFiles(t, "services") {
		source.WriteString(read(t, file))
	}
	rows := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.Contains(cells[3], "`millrace_") {
			continue
		}
		rows++
		said, metric := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
		if said != "none" && !strings.Contains(source.String(), said) { // with its quotes
			t.Errorf("no service logs %s", said)
		}
		if !strings.Contains(metrics, metric) {
			t.Errorf("there is no metric %s", metric)
		}
	}
	if rows < 10 {
		t.Errorf("the page has %d rows", rows)
	}
}

// read is the text of a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goFiles are the Go files below a folder of the repository, without tests.
func goFiles(t *testing.T, under string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("../..", under), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		relative, err := filepath.Rel("../..", path)
		all = append(all, filepath.ToSlash(relative))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// places counts the declarations that a document names, and tells which of them are not there.
func places(dir, text string) (named int, faults []string) {
	for _, link := range aPlace.FindAllStringSubmatch(text, -1) {
		named++
		declared, err := declarations(filepath.Join(dir, filepath.FromSlash(link[2])))
		switch {
		case os.IsNotExist(err):
			faults = append(faults, link[2]+" is not there")
		case err != nil:
			faults = append(faults, err.Error())
		case !declared[link[1]]:
			faults = append(faults, fmt.Sprintf("%s declares no %s", link[2], link[1]))
		}
	}
	return named, faults
}

// declarations are the names that a Go file declares at its top level; that of a method has its type in front.
func declarations(name string) (map[string]bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			all[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					all[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						all[n.Name] = true
					}
				}
			}
		}
	}
	return all, nil
}

// receiver is the type that a method has, with a dot, and nothing for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "."
		default:
			return ""
		}
	}
}
