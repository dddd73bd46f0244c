# Turn text files into one C source: cmake -DOUTPUT=file -DINPUTS=a;b -P embed.cmake
# It defines sim_calibration_files[], each with its name, and a NUL after its text.
set(body "")
set(table "")
set(index 0)
foreach(input IN LISTS INPUTS)
    get_filename_component(name "${input}" NAME)
    file(READ "${input}" hex HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
    string(APPEND body "static const char text_${index}[] = {\n${hex}0};\n")
    string(APPEND table "    {\"${name}\", text_${index}},\n")
    math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"calibration.h\"\n\n${body}\n"
    "const struct sim_calibration_file sim_calibration_files[] = {\n${table}    {0, 0},\n};\n")
