package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Word is a word that the project no longer uses.
type Word struct {
	Pattern string // an extended regular expression of the whole word or phrase, in any case
	Instead string // the field's word
	Most    int    // the number of places that still have it
}

// ReadWords reads a table of words: pattern, replacement, number of places, separated by tabs.
// It skips empty lines and those that begin with #.
//
// Errors: the file cannot be read, or a line is not such a row.
func ReadWords(name string) (words []Word, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read the words: %w", err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("%s:%d has %d columns, not 3: pattern, what to say, places", name, i+1, len(columns))
		}
		most, err := strconv.Atoi(columns[2])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: read the number of places: %w", name, i+1, err)
		}
		words = append(words, Word{Pattern: columns[0], Instead: columns[1], Most: most})
	}
	return words, nil
}

// prose are the extensions of the files in which words count: in identifiers, comments, texts
// and documents.
var prose = []string{".go", ".md", ".yaml"}

// CountWords finds the places of words below root, as "file:line", by pattern. A part of an
// identifier is a word, too: EngineOf has the word engine.
//
// Errors: a file cannot be read, or a pattern is not a regular expression.
func CountWords(root string, words []Word) (places map[string][]string, err error) {
	var all []string
	for _, w := range words {
		all = append(all, "(?:"+w.Pattern+")")
	}
	whole, err := regexp.Compile("(?i)^(?:" + strings.Join(all, "|") + ")$")
	if err != nil {
		return nil, fmt.Errorf("read the patterns: %w", err)
	}
	each := map[string]*regexp.Regexp{}
	longest := 1
	for _, w := range words {
		if each[w.Pattern], err = regexp.Compile("(?i)^(?:" + w.Pattern + ")$"); err != nil {
			return nil, fmt.Errorf("read the pattern %q: %w", w.Pattern, err)
		}
		longest = max(longest, 1+strings.Count(w.Pattern, " "))
	}
	places, is := map[string][]string{}, map[string][]string{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (slices.Contains(skipped, d.Name()) || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(prose, path.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, _ := filepath.Rel(root, name) // below root
		for i, line := range strings.Split(string(text), "\n") {
			for _, phrase := range phrases(split(line), longest) {
				found, known := is[phrase]
				if !known {
					if whole.MatchString(phrase) {
						found = matching(each, words, phrase)
					}
					is[phrase] = found
				}
				for _, pattern := range found {
					places[pattern] = append(places[pattern], fmt.Sprintf("%s:%d", filepath.ToSlash(relative), i+1))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count words: %w", err)
	}
	return places, nil
}

func matching(each map[string]*regexp.Regexp, words []Word, phrase string) (found []string) {
	for _, w := range words {
		if each[w.Pattern].MatchString(phrase) {
			found = append(found, w.Pattern)
		}
	}
	return found
}

// split returns the words of a line, also the parts of identifiers, in lower case.
func split(line string) (words []string) {
	begin := -1
	end := func(at int) {
		if begin >= 0 {
			words = append(words, strings.ToLower(line[begin:at]))
		}
		begin = -1
	}
	before := ' '
	for at, r := range line {
		switch {
		case !unicode.IsLetter(r):
			end(at)
		case begin < 0:
			begin = at
		case unicode.IsUpper(r) && unicode.IsLower(before):
			end(at)
			begin = at
		}
		before = r
	}
	end(len(line))
	return words
}

// phrases are the words of a line, and the phrases of up to longest words in a row.
func phrases(words []string, longest int) (all []string) {
	for at := range words {
		for n := 1; n <= longest && at+n <= len(words); n++ {
			all = append(all, strings.Join(words[at:at+n], " "))
		}
	}
	return all
}

// WriteWords writes a table with the current numbers of places, and keeps its comments. No
// number rises, so that of a new line has to begin high enough.
//
// Errors: the file cannot be read or written.
func WriteWords(name string, places map[string][]string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the words: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if columns := strings.Split(line, "\t"); len(columns) == 3 && !strings.HasPrefix(line, "#") {
			now := len(places[columns[0]])
			if before, err := strconv.Atoi(columns[2]); err == nil {
				now = min(now, before)
			}
			lines[i] = strings.Join([]string{columns[0], columns[1], strconv.Itoa(now)}, "\t")
		}
	}
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return fmt.Errorf("write the words: %w", err)
	}
	return nil
}
