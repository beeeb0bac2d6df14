package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// GitHub writes workflow commands, which GitHub shows beside the lines of a pull request, and the summary.
func GitHub(w io.Writer, result Result) error {
	out := bufio.NewWriter(w)
	for _, r := range result.Reports {
		for _, f := range findings(r) {
			command := "warning"
			if f.deny {
				command = "error"
			}
			fmt.Fprintf(out, "::%s file=%s,line=%d,title=%s::%s\n", command, escapeProperty(r.File), f.line, escapeProperty(f.rule),
				escapeData(prefix(kindAndName(r))+f.message+" ("+f.docs+")"))
		}
	}
	for _, skipped := range skippedTogether(result) {
		fmt.Fprintf(out, "::notice title=%s::%s\n", skipped.label, escapeData(count(skipped.objects, "object")+": "+skipped.rules))
	}
	_, _ = out.WriteString(summary(result)) // the error is Flush's as well
	return out.Flush()
}

var (
	dataEscapes     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	propertyEscapes = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func escapeData(text string) string     { return dataEscapes.Replace(text) }
func escapeProperty(text string) string { return propertyEscapes.Replace(text) }
