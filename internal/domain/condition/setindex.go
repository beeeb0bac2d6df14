package condition

import "strings"

// setIndex finds sets by what they ask, so that neither a forecast nor a node's event looks at each of them.
type setIndex map[facet]map[*setState]struct{}

// facet is something by which sets are found: a name, type or taint key, one node condition, or all conditions.
type facet struct{ kind, value string }

func (s *Set) facets() []facet {
	facets := []facet{{"name", s.Name}, {"type", s.Type}, {"key", s.Key}, {"conditions", membersText(s.Members)}}
	for _, m := range s.Members {
		facets = append(facets, facet{"condition", m.Type})
	}
	return facets
}

func (i setIndex) add(s *setState) {
	for _, by := range s.facets() {
		if i[by] == nil {
			i[by] = map[*setState]struct{}{}
		}
		i[by][s] = struct{}{}
	}
}

func (i setIndex) remove(s *setState) {
	for _, by := range s.facets() {
		if delete(i[by], s); len(i[by]) == 0 {
			delete(i, by)
		}
	}
}

// membersText is the same for equal conditions; no type has a line's end in it.
func membersText(members []Member) string {
	var text strings.Builder
	for _, m := range members {
		text.WriteString(m.Type + "=" + string(m.Status) + "\n")
	}
	return text.String()
}

// duplicatesOf names other sets with the same type or equal conditions.
func (i setIndex) duplicatesOf(s *Set) []string {
	var first nameSample
	for _, by := range []facet{{"type", s.Type}, {"conditions", membersText(s.Members)}} {
		for o := range i[by] {
			if o.Name != s.Name {
				first.add(o.Name)
			}
		}
	}
	return first.names
}

// impliedBy names other sets with the same key that match whenever this one does, but for its duplicates.
func (i setIndex) impliedBy(s *Set) []string {
	var first nameSample
	for o := range i[facet{"key", s.Key}] {
		fewer := len(o.Members) > 0 && len(o.Members) < len(s.Members)
		if fewer && o.Name != s.Name && o.Type != s.Type && subset(o.Members, s.Members) {
			first.add(o.Name)
		}
	}
	return first.names
}
