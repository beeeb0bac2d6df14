package main

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// rewrite says what a template has at a place.
type rewrite struct {
	// value is the one that goes there as it is; what config has there is its default.
	value string
	// adds: config has nothing there.
	adds bool
	// text of the line that the place is in.
	text func(l line) string
}

// line is the one of a place. Before is what it has before the place, such as "  replicas: ", the first of it indent spaces, and was
// what config has there, as JSON.
type line struct {
	before string
	indent int
	was    string
}

// inline puts an expression's value there, on the same line.
func inline(expression string) rewrite {
	return rewrite{text: func(l line) string { return l.before + "{{ " + expression + " }}" }}
}

// value puts one of the chart's values there, a number or a string.
func value(name string) rewrite {
	r := inline(".Values." + name + " | toJson")
	r.value = name
	return r
}

// block puts one of the chart's values there, a map or a list.
func block(name string) rewrite {
	return rewrite{value: name, text: func(l line) string {
		return fmt.Sprintf("%s\n{{- toYaml .Values.%s | nindent %d }}", strings.TrimRight(l.before, " "), name, l.indent+2)
	}}
}

// optional puts there what isn't empty.
func optional(expression string) rewrite {
	return rewrite{adds: true, text: func(l line) string {
		return fmt.Sprintf("{{- with %s }}\n%s\n{{- toYaml . | nindent %d }}\n{{- end }}", expression, strings.TrimRight(l.before, " "), l.indent+2)
	}}
}

// lines adds the entries of a map or a list to those that are there.
func lines(expression string) rewrite {
	return rewrite{adds: true, text: func(l line) string {
		return fmt.Sprintf("{{- with %s }}\n{{- toYaml . | nindent %d }}\n{{- end }}", expression, l.indent)
	}}
}

// instead has the entries of a map in place of config's.
func instead(expression string) rewrite { return rewrite{text: lines(expression).text} }

// when adds a line under a condition.
func when(condition, text string) rewrite {
	return rewrite{adds: true, text: func(l line) string {
		return fmt.Sprintf("{{- if %s }}\n%s%s\n{{- end }}", condition, strings.Repeat(" ", l.indent), text)
	}}
}

// unless has another line in place of config's under a condition.
func unless(condition, text string) rewrite {
	return rewrite{text: func(l line) string {
		return fmt.Sprintf("{{- if %s }}\n%s%s\n{{- else }}\n%s%s\n{{- end }}", condition, strings.Repeat(" ", l.indent), text, l.before, l.was)
	}}
}

// mark stands for a place, by its number, until the object is text.
const mark = "PLACE%dECALP"

var marked = regexp.MustCompile(`(?m)^(( *).*?)'?PLACE(\d+)ECALP.*$`)

// chart has the text of each file that is generated, by its name.
func chart(root string) (map[string]string, error) {
	objects, err := ofChart(root)
	if err != nil {
		return nil, err
	}
	about := map[string]any{} // what config has where values go
	files := map[string]string{"charts/autohealer/Chart.yaml": metadata(versionOf(objects)), "charts/autohealer/templates/extraobjects.yaml": extraObjects}
	about["image.registry"], about["image.repository"], _ = imageOf(objects)
	used := make([]bool, len(places))
	for _, o := range objects {
		text, err := template(o, places, used, about)
		if err != nil {
			return nil, err
		}
		files["charts/autohealer/templates/"+strings.ToLower(fmt.Sprint(o["kind"]))+".yaml"] += text
	}
	for i, p := range places {
		if !used[i] {
			return nil, fmt.Errorf("there is no object %s", p.objects)
		}
	}
	all, err := withDefaults(about)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, map[string]string{
		"charts/autohealer/values.yaml": valuesFile(all), "charts/autohealer/values.schema.json": schema(all), "docs/reference/values.md": page(all),
	})
	return files, nil
}

// template is an object with its places.
func template(o object, places []place, used []bool, defaults map[string]any) (string, error) {
	if o["metadata"].(map[string]any)["labels"] == nil {
		o["metadata"].(map[string]any)["labels"] = map[string]any{}
	}
	was := map[int]string{}
	for i, p := range places {
		if !o.is(p.objects) {
			continue
		}
		stood, err := o.put(p.path, fmt.Sprintf(mark, i), p.has.adds)
		if err != nil {
			return "", err
		}
		was[i], used[i] = toJSON(stood), true
		if p.has.value != "" {
			defaults[p.has.value] = stood
		}
	}
	text := strings.ReplaceAll(o.yaml(), "{{", `{{ "{{" }}`) // such as in alerts, which aren't Helm's templates
	text = marked.ReplaceAllStringFunc(text, func(found string) string {
		parts := marked.FindStringSubmatch(found)
		i, _ := strconv.Atoi(parts[3])
		return places[i].has.text(line{before: parts[1], indent: len(parts[2]), was: strings.ReplaceAll(was[i], "{{", `{{ "{{" }}`)})
	})
	text = "---\n" + strings.ReplaceAll(text, namespace, "{{ .Release.Namespace }}")
	for _, c := range conditions {
		if o.is(c.objects) {
			text = "{{- if " + c.when + " }}\n" + text + "{{- end }}\n"
		}
	}
	return text, nil
}
