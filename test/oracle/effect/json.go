package effect

import (
	"encoding/json"
	"fmt"
)

// Parse is the JSON of an object without its type. It panics if it is no JSON object.
func Parse(body []byte) map[string]any {
	tree := map[string]any{}
	if err := json.Unmarshal(body, &tree); err != nil {
		panic(fmt.Sprintf("an effect that is no JSON object: %v: %s", err, body))
	}
	delete(tree, "kind") // clients omit the type in requests
	delete(tree, "apiVersion")
	return tree
}

// JSON is a value that came from JSON as text, with sorted fields.
func JSON(tree any) string {
	out, err := json.Marshal(tree)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(out)
}

// NonEmpty drops values that JSON can omit or write as empty: nulls, empty strings and empty maps. The
// empty value of a label or of an annotation stays.
func NonEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			if values, ok := item.(map[string]any); ok && len(values) > 0 && (key == "labels" || key == "annotations") {
				out[key] = item
			} else if item = NonEmpty(item); item != nil {
				out[key] = item
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		for i := range v {
			v[i] = NonEmpty(v[i])
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return value
}
