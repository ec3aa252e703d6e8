package past

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
	"github.com/millrace/millrace/cmd/internal/reader/session"
)

// toPrinter is the function that prints objects as get's --output asks.
//
// Errors: the JSONPath template is invalid.
func toPrinter(output string) (func(s *session.Session, answer any, all []item) error, error) {
	template, isPath := strings.CutPrefix(output, "jsonpath=")
	switch {
	case isPath:
		path := jsonpath.New("--output").AllowMissingKeys(true)
		if err := path.Parse(relaxed(template)); err != nil || template == "" {
			return nil, fmt.Errorf("read --output: %q is no JSONPath template, such as jsonpath='{.spec.replicas}' (%w)", template, err)
		}
		return func(s *session.Session, answer any, _ []item) error { return printPath(s, path, answer) }, nil
	case output == "name":
		return func(s *session.Session, _ any, all []item) error {
			for _, o := range all {
				s.Paper.Line("%s", o.ref())
			}
			return nil
		}, nil
	case output == "table" || output == "wide":
		return func(s *session.Session, _ any, all []item) error {
			drawObjects(s.Paper, all, output == "wide")
			return nil
		}, nil
	default:
		return func(s *session.Session, answer any, _ []item) error { return s.Print(answer, nil) }, nil
	}
}

// relaxed adds the parts of a JSONPath that kubectl lets users omit: braces and the first dot.
//
// Upstream: k8s.io/kubectl/pkg/cmd/get, RelaxedJSONPathExpression.
func relaxed(template string) string {
	if strings.Contains(template, "{") {
		return template
	}
	return "{." + strings.TrimPrefix(template, ".") + "}"
}

func printPath(s *session.Session, path *jsonpath.JSONPath, answer any) error {
	text, err := json.Marshal(answer)
	var tree any
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	var out bytes.Buffer
	if err == nil {
		err = path.Execute(&out, tree)
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	s.Paper.Line("%s", strings.TrimSuffix(out.String(), "\n"))
	return nil
}

// drawObjects draws a table for each kind, with an empty line between two.
func drawObjects(p *printer.Paper, all []item, wide bool) {
	several := len(all) > 0 && all[0].kind.Name != all[len(all)-1].kind.Name
	for first := 0; first < len(all); {
		next := first
		for next < len(all) && all[next].kind.Name == all[first].kind.Name {
			next++
		}
		if first > 0 {
			p.Line("")
		}
		drawKind(p, all[first:next], several, wide)
		first = next
	}
}

func drawKind(p *printer.Paper, all []item, several, wide bool) {
	head := []string{"NAMESPACE", "NAME", "STATE", "VERSION", "GENERATION", "SINCE", "BY"}
	pods := all[0].kind.Name == "pods"
	if wide && pods {
		head = append(head, "PHASE", "NODE")
	}
	if wide {
		head = append(head, "OWNER", "LABELS")
	}
	rows := make([][]printer.Cell, len(all))
	for i, o := range all {
		e, name := o.entry, o.entry.Ref.Name
		status := printer.Cell{Text: "there", Colour: printer.Green}
		if e.Deleting {
			status = printer.Cell{Text: "deleting", Colour: printer.Red}
		}
		if several {
			name = o.ref()
		}
		row := printer.Cells(e.Ref.Namespace, name, "", e.ResourceVersion, fmt.Sprint(e.Generation), printer.Time(e.At), o.by.String())
		row[2] = status
		object := unstructured.Unstructured{Object: o.tree}
		if wide && pods {
			phase, _, _ := unstructured.NestedString(o.tree, "status", "phase")
			node, _, _ := unstructured.NestedString(o.tree, "spec", "nodeName")
			row = append(row, printer.Cells(orNone(phase), orNone(node))...)
		}
		if wide {
			row = append(row, printer.Cells(orNone(printer.Owner(object)), labels.FormatLabels(object.GetLabels()))...)
		}
		rows[i] = row
	}
	p.Table(head, rows)
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}
